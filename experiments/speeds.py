"""Speeds for Table 2 from the rows of benchmarks, whose systems had a device for themselves and took turns on it.

Runs of a grid share a device, so their rows say little about speed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.grid import ROOT

RESULTS = ROOT / "results"
TRAINING = ("training/simplex.json", "training/training.json")
"""Of `python -m benchmarks.training`; where a kind is in several files, the first counts."""
DECODING = "decoding.jsonl"
"""Of `python -m benchmarks.decoding`."""
SENTENCE = {"batch": 1, "source_length": "30"}
"""One sentence at a time, as in the paper, of the mean length of our text."""
SAME_ENGINE = {"sparsemax": "softmax:reference", "entmax15": "softmax:reference"}
"""Softmax in the engine that decodes a kind, where it is not the one for GPUs."""


@dataclass(frozen=True)
class Training:
    """Of a training step."""

    tokens_per_second: float
    """Target tokens."""
    against_softmax: float
    """The ratio to softmax in the same run."""
    peak_gib: float


def training(kind: str, results: Path = RESULTS) -> Training | None:
    """The training speed of a kind, or None where it was not measured."""
    for name in TRAINING:
        for row in json.loads((results / name).read_text(encoding="utf-8")):
            if row["side"] == kind and "target_tokens_per_second" in row:
                return Training(row["target_tokens_per_second"], row["ratio_to_softmax"], row["peak_memory_gib"])
    return None


def decoding(kind: str, results: Path = RESULTS) -> float | None:
    """Sentences a second, one at a time, against softmax in the same engine; None where it was not measured."""
    rows = [json.loads(line) for line in (results / DECODING).read_text(encoding="utf-8").splitlines()]

    def speed(side: str) -> Any:
        fits = (row["tokens_per_second"] for row in rows if row["side"] == side and SENTENCE.items() <= row.items())
        return next(fits, None)

    ours, softmax = speed(kind), speed(SAME_ENGINE.get(kind, "softmax"))
    return None if ours is None or softmax is None else ours / softmax
