"""rela convert and rela card: folders there and back, a card in the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_models import tiny_folder, toy_pairs


def test_a_model_is_converted_there_and_back(tmp_path: Path, call: Callable, fails: Callable):
    pytest.importorskip("transformers")
    tiny_folder(tmp_path / "ours")
    assert call("convert", tmp_path / "ours", "--to", "hf", "--out", tmp_path / "hf")[0] == 0
    assert call("convert", tmp_path / "hf", "--to", "rela", "--out", tmp_path / "again")[0] == 0
    assert (tmp_path / "again" / "config.yaml").read_bytes() == (tmp_path / "ours" / "config.yaml").read_bytes()
    fails(
        "convert", tmp_path / "ours", "--to", "onnx", "--out", tmp_path / "x", named="--to is 'onnx'; wanted hf or rela"
    )


def test_the_command_writes_the_card_into_the_folder(tmp_path: Path, call: Callable, fails: Callable):
    tiny_folder(tmp_path / "model")
    for side, name in enumerate(("test.en", "test.de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in toy_pairs(3)))
    assert call("card", tmp_path / "model", tmp_path / "test.en", tmp_path / "test.de", "--limit", 2)[0] == 0
    assert "On test.en, test.de, 2 pairs." in (tmp_path / "model" / "README.md").read_text()
    assert tiny_folder(tmp_path / "model")  # replaced by a new model all the same
    fails("card", tmp_path / "model", tmp_path / "test.en", named="wanted SRC and TGT")
