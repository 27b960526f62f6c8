"""The files a filtered corpus becomes: scores as TSV, the kept pairs, and where they are written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import raw_pairs
from rela.files import replacing
from rela.filtering.score_corpus import PROBLEMS

SPACES = bytes.maketrans(b"\t\r\0", b"   ")


def parts_folder(out: str | Path) -> Path:
    """The folder in which the scores of `out` are collected; it stays, so that another threshold costs nothing."""
    return Path(f"{out}.parts")


def summary_path(out: Path) -> Path:
    """Where the summary of `out` is written."""
    return out.with_suffix(".summary.json")


def kept_paths(out: Path, kept_files: tuple[Path, Path] | None) -> tuple[Path, Path]:
    """The files for the kept pairs: those given, or two beside the scores."""
    return kept_files or (out.with_suffix(".kept.source"), out.with_suffix(".kept.target"))


def check_columns(ranked: bool, text: bool) -> None:
    """Refuse a TSV that is sorted and has the text, which is only read in the order of the corpus."""
    if ranked and text:
        raise ValueError("the text can only be written in the order of the corpus, not ranked; wanted one of them")


def score_columns(
    scores: NDArray[Any],
    goodness: NDArray[np.float64],
    order: NDArray[np.int64],
    kept: NDArray[np.bool_] | None,
    by: str,
) -> dict[str, Callable[[int], str]]:
    """The columns of the TSV: for each a function from a line, counted from 0, to the text of its field."""
    rank = np.zeros(len(scores), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    columns: dict[str, Callable[[int], str]] = {
        "line": lambda i: str(i + 1),
        "null_rate": lambda i: number(scores["null_rate"][i]),
        "log_prob": lambda i: number(scores["log_prob"][i]),
    }
    if by == "both":
        columns["both"] = lambda i: number(goodness[i])
    if by == "score":
        columns["score"] = lambda i: number(scores["score"][i])
    columns["rank"] = lambda i: str(rank[i]) if rank[i] else ""
    if kept is not None:
        columns["kept"] = lambda i: str(int(kept[i]))
    columns["problem"] = lambda i: PROBLEMS[scores["problem"][i]]
    return columns


def number(value: Any) -> str:
    """A score as text that reads back as the same number; nothing for NaN."""
    return "" if np.isnan(value) else repr(float(value))


def write_scores(
    file: IO[bytes],
    columns: Mapping[str, Callable[[int], str]],
    lines: Iterable[int],
    texts: Iterator[tuple[int, bytes | None, bytes | None]] | None,
) -> None:
    """Write header and rows; see `as_field` for text."""
    file.write("\t".join([*columns, *(["source", "target"] if texts is not None else [])]).encode() + b"\n")
    for line in lines:
        row = "\t".join(field(line) for field in columns.values()).encode()
        if texts is not None:
            _, *sides = next(texts)
            row = b"\t".join([row, *(as_field(side or b"") for side in sides)])
        file.write(row + b"\n")


def as_field(line: bytes) -> bytes:
    """A line as text of a table: what readers take for the end of a field or row is a space, what is no UTF-8 is �."""
    return line.translate(SPACES).decode("utf-8", "replace").encode()


def write_kept(kept: NDArray[np.bool_], source: str | Path, target: str | Path, files: tuple[Path, Path]) -> None:
    """Write the text of the pairs to keep as it is, in the order of the corpus; each line ends in a line feed."""
    with whole_file(files[0]) as sources, whole_file(files[1]) as targets:
        for (_, left, right), wanted in zip(raw_pairs(source, target), kept.tolist(), strict=True):
            if wanted:
                sources.write((left or b"") + b"\n")
                targets.write((right or b"") + b"\n")


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, open(partial, "wb") as file:
        yield file
