"""A model and a text for the commands that need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.cases import SOURCES, TARGETS, make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """An untrained model: the command line does not care what it says."""
    return make_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def texts(tmp_path) -> Path:
    (tmp_path / "source.en").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    (tmp_path / "target.de").write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    return tmp_path
