"""What a run leaves behind, read for comparison, and configurations that differ a little."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rela.config import Config


def events(config: Config, event: str = "train") -> list[dict[str, Any]]:
    """The rows of one kind in a run's log."""
    lines = (Path(config.train.directory) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["event"] == event]


def checkpoint(config: Config, step: int) -> Path:
    return Path(config.train.directory) / "checkpoints" / f"step-{step:07d}"


def leftovers(config: Config) -> list[str]:
    """Hidden files and folders anywhere in a run: what was half-written."""
    return [str(path) for path in Path(config.train.directory).rglob(".*")]


def final_bytes(config: Config) -> dict[str, bytes]:
    """The finished weights, and the weights and optimiser of the last checkpoint."""
    directory = Path(config.train.directory)
    last = max((directory / "checkpoints").glob("step-*"))
    files = [directory / "model" / "model.safetensors", last / "model.safetensors", last / "optimiser.safetensors"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def with_train(config: Config, **options) -> Config:
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **options))
