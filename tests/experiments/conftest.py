"""A task on the embedded corpus that a CPU trains in a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.grid import Grid, load_grid
from experiments.runner import Options
from rela.config import load_config
from rela.data.prepare import prepare
from rela.toy import split, write_corpus

CONFIG = """
data:
  root: data/toy
  train: [{source: train.en, target: train.de}]
  valid: {source: valid.en, target: valid.de}
  directory: data/prepared/toy
  vocabulary_size: 300
model: {width: 32, heads: 2, encoder_layers: 2, decoder_layers: 2, feed_forward: 64, max_length: 256}
train: {steps: 12, tokens: 400, warmup: 8, log_every: 1, validate_every: 6, save_every: 3, keep_last: 2,
        average_last: 2, device: cpu}
decode: {beam: 2, max_length_extra: 3, max_length_ratio: 1.0}
"""
TASKS = """
toy:
  config: {config}
  tests: {{toy: {{source: toy/test.en, target: toy/test.de}}, valid: {{source: toy/valid.en, target: toy/valid.de}}}}
  analysis: {{source: toy/test.en, target: toy/test.de, pairs: 10}}
  gold: {{source: toy/test.en, target: toy/test.de, links: toy/test.align}}
"""
GRID = """
experiment: toy
variations:
  rela-g: {attention: rela-g, seconds: 100}
  softmax: {attention: softmax, seconds: 100}
runs:
  - {variation: [rela-g, softmax], seed: 1, task: toy}
"""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the corpora: text in toy/, ids in prepared/toy/."""
    folder = tmp_path_factory.mktemp("experiments") / "data"
    parts = dict(zip(("train", "valid", "test"), split(300, 12, 12, seed=1), strict=True))
    write_corpus(folder / "toy", parts)
    (folder / "toy.yaml").write_text(CONFIG)
    (folder / "tasks.yaml").write_text(TASKS.format(config=folder / "toy.yaml"))
    config = load_config(folder / "toy.yaml").data
    prepare(replace(config, root=str(folder / "toy"), directory=str(folder / "prepared/toy")))
    return folder


@pytest.fixture
def make_grid(data: Path, tmp_path: Path) -> Callable[..., Grid]:
    """A function that loads a grid of runs on the embedded corpus, given as text."""

    def make(text: str = GRID) -> Grid:
        (tmp_path / "toy.yaml").write_text(text)
        return load_grid(tmp_path / "toy.yaml", data / "tasks.yaml")

    return make


@pytest.fixture
def options(data: Path, tmp_path: Path) -> Options:
    return Options(data=data, runs=tmp_path / "runs", rows=tmp_path / "rows", out=tmp_path / "out", commit="abc1234")


@pytest.fixture
def now() -> float:
    return time.monotonic()
