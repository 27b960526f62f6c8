"""A model and a text for the commands that need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rela.toy import generate, write_corpus
from tests.commands.cases import SOURCES, TARGETS, make_model
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """An untrained model: the command line does not care what it says."""
    return make_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def texts(tmp_path) -> Path:
    (tmp_path / "source.en").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    (tmp_path / "target.de").write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    """A folder with two models, a text of eight pairs and its gold links."""
    folder = tmp_path_factory.mktemp("lab")
    tiny_folder(folder / "rela-g" / "model")
    tiny_folder(folder / "soft", "softmax")
    write_corpus(folder, {"test": generate(8, seed=5)})
    return folder
