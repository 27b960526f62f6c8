"""What the tests of this folder share: a local server, and a small parallel text."""

import threading

import pytest

from rela.config import DataConfig
from tests.data.local_server import CONTENT, Server
from tests.data.parallel_text import make_pairs, write_pairs


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.files["file.bin"] = CONTENT
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def config(tmp_path):
    """A data configuration over a few hundred generated pairs."""

    def make(**changes):
        defaults = {
            "root": str(tmp_path),
            "train": (write_pairs(tmp_path, "train", make_pairs(300)),),
            "directory": str(tmp_path / "prepared"),
            "vocabulary_size": 60,
            "shard_pairs": 64,
        }
        return DataConfig(**defaults | changes)

    return make
