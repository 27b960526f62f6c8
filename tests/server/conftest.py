"""Two tiny models, as folders and behind a real server on a free port."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rela.alignment.choose import AlignmentChoice, save_choice
from rela.config import DecodeConfig
from rela.decoding.translate import Translator
from tests.tiny_models import tiny_translator

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
httpx = pytest.importorskip("httpx")

SHORT = DecodeConfig(beam=2, max_length_ratio=1.0, max_length_extra=2)
"""Untrained models find no end; this one keeps their translations short."""


def save_short(path, kind):
    """A tiny model that translates briefly, as a folder."""
    good = tiny_translator(kind)
    Translator(good.model, good.subwords, dataclasses.replace(good.config, decode=SHORT), "cpu").save(path)
    return path


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    found = {"en-de": save_short(place / "one", "rela-g"), "de-en": save_short(place / "two", "softmax")}
    save_choice(found["en-de"], AlignmentChoice(layer=1, heads=(0,), shifted=True))
    return found


@pytest.fixture(scope="session")
def translators(folders):
    return {name: Translator.load(folder, "cpu") for name, folder in folders.items()}


@contextlib.contextmanager
def serving(server):
    """A client of a server that runs."""
    from tests.web.serving import running

    with (
        running(server.limiter, server.app) as (address, _),
        httpx.Client(base_url=address, timeout=60, trust_env=False, limits=httpx.Limits(max_connections=100)) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def server(translators):
    from rela.server.app import TranslationServer

    return TranslationServer(translators)


@pytest.fixture(scope="session")
def client(server):
    with serving(server) as client:
        yield client


def at_once(ask, items, clients=16):
    """What `ask` gives for each item, many at a time, in their order."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, items))


@contextlib.contextmanager
def busy(model):
    """Keep the worker of a served model from anything else."""
    go, begun = threading.Event(), threading.Event()

    def wait():
        begun.set()
        return go.wait(30)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: asyncio.run(model.run(wait)))
        assert begun.wait(10)
        try:
            yield
        finally:
            go.set()
            assert waiting.result()


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)
