"""What Prometheus is told: requests, their times, batches, and what waits."""

from __future__ import annotations

import time
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from rela.server.batching import BatchDone
from rela.server.models import ServedModels
from rela.web.request_limiter import Application, Message, Receive, RequestLimiter, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
OTHER = "other"
"""The path of requests to none of the server's own: names that clients invent are not kept."""


class Metrics:
    """The numbers of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter("rela_requests", "Requests answered.", ["path", "status"], registry=self.registry)
        self.left = Counter("rela_clients_left", "Clients that left before their answer.", registry=self.registry)
        self.request_seconds = Histogram(
            "rela_request_seconds",
            "From the head of a request to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.sentences = Counter("rela_sentences", "Sentences computed.", ["model", "task"], registry=self.registry)
        self.batch_sentences = Histogram(
            "rela_batch_sentences", "Sentences of a batch.", ["model"], buckets=SIZES, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "rela_batch_seconds", "Time to compute a batch.", ["model"], buckets=SECONDS, registry=self.registry
        )
        self.in_flight = Gauge("rela_requests_in_flight", "Requests that are being answered.", registry=self.registry)
        self.waiting = Gauge(
            "rela_sentences_waiting", "Sentences that wait for a model.", ["model"], registry=self.registry
        )

    def observe_batch(self, model: str, measured: BatchDone) -> None:
        """Count a batch; called by a model's worker."""
        self.sentences.labels(model, measured.task).inc(measured.sentences)
        self.batch_sentences.labels(model).observe(measured.sentences)
        self.batch_seconds.labels(model).observe(measured.seconds)

    def watch(self, models: ServedModels, limiter: RequestLimiter) -> None:
        """Read, whenever the metrics are asked for, what waits and what is in flight."""
        self.in_flight.set_function(lambda: limiter.in_flight)
        for model in models:
            self.waiting.labels(model.name).set_function(partial(getattr, model.batcher, "sentences"))

    def text(self) -> bytes:
        """All of it in Prometheus's format."""
        return generate_latest(self.registry)


class Measured:
    """An ASGI application that counts and times the requests to another one."""

    def __init__(self, app: Application, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        path = self.path_of(scope["path"])
        try:
            await self.app(scope, receive, note)
        except Exception:
            status = status or 500
            raise
        finally:
            if status:
                self.metrics.requests.labels(path, status).inc()
                self.metrics.request_seconds.labels(path).observe(time.monotonic() - start)
            else:
                self.metrics.left.inc()

    def path_of(self, path: str) -> str:
        if path in self.paths:
            return path
        return "/explorer" if path.startswith("/explorer/") else OTHER
