"""The example runs from start to end at toy size, for our Transformer and for Marian."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

import rela
from examples.softmax_to_rela import main

SMALL = {
    "train": 200,
    "test": 3,
    "sentences": 4,
    "width": 16,
    "vocabulary": 300,
    "teacher-steps": 3,
    "attention-steps": 2,
    "output-steps": 2,
    "every": 2,
}


@pytest.mark.parametrize("family", ["rela", pytest.param("marian", marks=pytest.mark.campaign)])
def test_the_example_runs(family: str, tmp_path: Path):
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    main([*options, f"--family={family}", f"--out={tmp_path}"])
    lines = (tmp_path / "table.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:2] for row in cells[2:]] == [["softmax", "0"], ["exchanged", "0"], ["attention", "2"], ["output", "4"]]
    sparsity = [[float(rate) for rate in row[4:7]] for row in cells[2:]]
    assert max(sparsity[0]) < 0.05
    assert min(sparsity[-1]) > 0.05, "ReLA has zeros in every attention"
    assert (tmp_path / "curves.png").stat().st_size > 0
    if family == "rela":
        assert rela.load(tmp_path / "model").config.model.cross_attention == "rela-g"
    else:
        assert (tmp_path / "model" / "config.json").is_file()
