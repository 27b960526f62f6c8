"""Requests, clients that left and failures are counted, and paths are not invented by clients."""

import asyncio

import pytest

from rela.server.batching import BatchDone
from rela.server.metrics import Measured, Metrics


def ask(metrics, path, answer):
    async def app(scope, receive, send):
        if answer is Exception:
            raise RuntimeError
        if answer is not None:
            await send({"type": "http.response.start", "status": answer})
            await send({"type": "http.response.body", "body": b""})

    async def nothing(*message):
        return {"type": "http.disconnect"}

    asyncio.run(Measured(app, metrics, frozenset({"/known"}))({"type": "http", "path": path}, nothing, nothing))


def test_requests_are_counted_by_known_path_and_status():
    metrics = Metrics()
    for path, answer in (("/known", 200), ("/known", 200), ("/known", 503), ("/<x>", 404), ("/explorer/a", 200)):
        ask(metrics, path, answer)
    ask(metrics, "/known", None)
    with pytest.raises(RuntimeError):
        ask(metrics, "/known", Exception)
    metrics.observe_batch("m", BatchDone("score", 2, 7, 0.5))
    text = metrics.text().decode()
    for line in (
        'rela_requests_total{path="/known",status="200"} 2.0',
        'rela_requests_total{path="/known",status="503"} 1.0',
        'rela_requests_total{path="/known",status="500"} 1.0',
        'rela_requests_total{path="other",status="404"} 1.0',
        'rela_requests_total{path="/explorer",status="200"} 1.0',
        "rela_clients_left_total 1.0",
        'rela_sentences_total{model="m",task="score"} 7.0',
        'rela_batch_seconds_sum{model="m"} 0.5',
    ):
        assert line in text
