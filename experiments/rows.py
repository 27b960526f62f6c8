"""One JSON object for each finished run, in one file for each experiment: `experiments/rows/EXPERIMENT.jsonl`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rela.files import lock, replacing

ROWS = Path(__file__).with_name("rows")
FREE = {"train.directory", "train.device", "train.tensorboard", "train.log_every", "data.root", "data.directory"}
"""Settings that do not decide what a run measures."""

Row = dict[str, Any]


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file, in order; none where there is no file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise ValueError(f"{path}, line {number}: wanted a JSON object") from None
    return rows


def append_row(path: str | Path, row: Row) -> None:
    """Add a row to a file, which at every moment holds whole rows alone; other processes may add theirs."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).with_name(f".{Path(path).name}.lock").open("w") as file:
        lock(file.fileno(), f"{path} is being written", wait=True)
        write_rows(path, [*read_rows(path), row])


def write_rows(path: str | Path, rows: Sequence[Row]) -> None:
    """Replace the rows of a file, all or none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def merge_rows(path: str | Path, new: Iterable[Row]) -> int:
    """Add the rows that the file does not hold yet; how many there were."""
    rows = read_rows(path)
    before = len(rows)
    for row in new:
        if row not in rows:
            rows.append(row)
    if len(rows) > before:
        write_rows(path, rows)
    return len(rows) - before


def row_of(rows: Sequence[Row], id: str, config: Mapping[str, Any], limit: int | None = None) -> Row | None:
    """The newest row of a run, if one was made with this configuration."""
    for row in reversed(rows):
        if row["id"] == id and row["limit"] == limit and same_settings(row["config"], config):
            return row
    return None


def same_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two configurations agree in every setting that both know; a setting may be newer than a row."""
    old, new = dict(flat(before)), dict(flat(now))
    return all(old[key] == new[key] for key in old.keys() & new.keys() if key not in FREE)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings with their dotted names."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
