"""One JSON object for each finished run, in one file for each experiment: `experiments/rows/EXPERIMENT.jsonl`."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rela.files import lock, parse_json, read_text, replacing

ROWS = Path(__file__).with_name("rows")
FREE = {"train.directory", "train.device", "train.tensorboard", "train.log_every", "data.root", "data.directory"}
"""Settings that do not decide what a run measures."""
FIELDS = [
    "id",
    "experiment",
    "task",
    "variation",
    "seed",
    "limit",
    "error",
    "config",
    "training",
    "scores",
    "analysis",
    "seconds",
]
"""What each row holds; newer ones hold more."""

Row = dict[str, Any]


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file, in order; none where there is no file."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # text in a row may hold other ends of lines
        try:
            row = parse_json(line) if line else {}
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: wanted a JSON object")
        rows += [row] if line else []
    return rows


def check_rows(rows: Sequence[Row], where: str) -> None:
    """Refuse rows that the runner has not written: they would be an error whenever tables are made."""
    for number, row in enumerate(rows, start=1):
        if missing := [name for name in FIELDS if name not in row]:
            raise ValueError(f"{where}, row {number} lacks {', '.join(missing)}; wanted rows of `run`")
        check_name(row["experiment"], f"{where}, row {number}")


def check_name(experiment: Any, where: str) -> None:
    """Refuse the name of an experiment that cannot be that of its file of rows."""
    if not isinstance(experiment, str) or not re.fullmatch(r"[\w-]+", experiment):
        raise ValueError(f"{where}: experiment is {experiment!r}; wanted a name of letters, digits, - and _")


def append_row(path: str | Path, row: Row) -> None:
    """Add a row to a file, which at every moment holds whole rows alone; other processes may add theirs."""
    with alone_with(path):
        write_rows(path, [*read_rows(path), row])


@contextlib.contextmanager
def alone_with(path: str | Path) -> Iterator[None]:
    """Within this no other process changes a file of rows."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).with_name(f".{Path(path).name}.lock").open("w") as file:
        lock(file.fileno(), f"{path} is being written", wait=True)
        yield


def write_rows(path: str | Path, rows: Sequence[Row]) -> None:
    """Replace the rows of a file, all or none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def merge_rows(path: str | Path, new: Iterable[Row]) -> int:
    """Add the rows that the file does not hold yet; how many there were."""
    with alone_with(path):
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
