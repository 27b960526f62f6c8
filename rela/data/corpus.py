"""Text in: lines and sentence pairs from plain or compressed files, with file and line in every complaint."""

from __future__ import annotations

import gzip
import io
import itertools
import lzma
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from rela.data.compressed import open_xz, open_zst

MAX_LINE_BYTES = 1 << 22
"""A longer line is never held in memory whole: a file without line ends must not fill the RAM."""
LONGEST_LINE = 1 << 28
"""Bytes; what goes on for longer is no text, and may never end."""
LINES_A_REPORT = 8192

EMPTY = "empty"
NOT_UTF8 = "not UTF-8"
NUL = "NUL character"
TOO_LONG = "line over 4 MiB"


class CorpusError(ValueError):
    """A corpus cannot be read; the message names the file and, where there is one, the line."""


def open_text(path: str | Path) -> IO[bytes]:
    """Open plain, .gz, .xz or .zst text for reading bytes; "-" is the standard input."""
    if str(path) == "-":
        return standard_input()
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        if path.suffix == ".xz":
            return open_xz(path)
        if path.suffix == ".zst":
            return open_zst(path)
        return path.open("rb")
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror or error}") from None


def standard_input() -> IO[bytes]:
    """The standard input by a reader of its own: a thread that waits for a line must not hold Python's when it ends."""
    try:
        return open(os.dup(sys.stdin.fileno()), "rb")
    except (OSError, io.UnsupportedOperation):  # replaced by something that is no file
        return sys.stdin.buffer


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file without their ends; a line that is no text raises CorpusError "FILE, line N: …"."""
    for number, raw in raw_lines(path):
        yield text_of(path, number, raw)


def text_of(path: str | Path, number: int, raw: bytes | None) -> str:
    """The text of a line, which may be empty; one that is no text raises CorpusError."""
    text, problem = decode_line(raw)
    if problem and problem != EMPTY:
        raise CorpusError(f"{path}, line {number}: {problem}")
    return text


def read_pairs(
    source: str | Path,
    target: str | Path,
    on_bad_line: str = "skip",
    counts: Counter[str] | None = None,
    report: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Pairs of the n-th lines of two files; if both are "-", tab-separated pairs from the standard input.

    A pair with an empty or undecodable side is skipped and counted by reason in `counts`, or raises
    CorpusError if `on_bad_line` is "raise". Files of unequal length always raise, at their end. `report` is told how
    many lines were read, from time to time.
    """
    if on_bad_line not in ("skip", "raise"):
        raise ValueError(f'on_bad_line is {on_bad_line!r}; wanted "skip" or "raise"')
    for number, raw_source, raw_target in raw_pairs(source, target):
        if report is not None and number % LINES_A_REPORT == 0:
            report(number)
        source_text, source_problem = decode_line(raw_source)
        target_text, target_problem = decode_line(raw_target)
        if not source_problem and not target_problem:
            yield source_text, target_text
            continue
        if on_bad_line == "raise":
            where = source if source_problem else target
            raise CorpusError(f"{where}, line {number}: {source_problem or target_problem}")
        if counts is not None:
            # one reason a pair; what is wrong with the file outweighs a line that is only empty
            problems = [problem for problem in (source_problem, target_problem) if problem]
            counts[min(problems, key=lambda problem: problem == EMPTY)] += 1


def is_empty(source: str, target: str) -> bool:
    """Whether a side of a sentence pair has no words: such a pair has neither a score nor links."""
    return not (source.strip() and target.strip())


def raw_pairs(source: str | Path, target: str | Path) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Line number and undecoded lines of both sides; None stands for a line too long to hold.

    One table (.parquet or .jsonl) given as both files has the sides in its columns `source` and `target`.
    """
    if str(source) == str(target) == "-":
        for number, raw in raw_lines("-"):
            if number == 1:
                check_columns(raw)
            left, _, right = (None, b"", None) if raw is None else raw.partition(b"\t")
            yield number, left, right
        return
    from rela.data.tables import COLUMNS, check_tables, is_table, table_rows

    check_tables([source, target])
    if is_table(source):
        for number, (left, right) in enumerate(table_rows(source, COLUMNS), 1):
            yield number, left, right
        return
    sources, targets = raw_lines(source), raw_lines(target)
    for left_line, right_line in itertools.zip_longest(sources, targets):
        if left_line is None or right_line is None:
            (number, _), rest = (left_line, sources) if right_line is None else (right_line, targets)
            longer = number + sum(1 for _ in rest)
            lengths = (longer, number - 1) if right_line is None else (number - 1, longer)
            raise CorpusError(f"unequal line counts: {source} has {lengths[0]}, {target} has {lengths[1]}")
        yield left_line[0], left_line[1], right_line[1]


def check_columns(first: bytes | None) -> None:
    """Refuse pairs from the standard input whose first line has not two columns; a later one may have a stray tab."""
    if first is not None and first.strip() and (count := first.count(b"\t") + 1) != 2:
        found = "one column" if count == 1 else f"{count} columns"
        raise CorpusError(f"the standard input, line 1: {found} separated by tabs; wanted two, source and target")


def raw_lines(path: str | Path) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines as bytes, split at LF alone; None for a line over MAX_LINE_BYTES, which is read past."""
    file = open_text(path)
    number = 0
    try:
        for number in itertools.count(1):
            raw = file.readline(MAX_LINE_BYTES)
            if not raw:
                return
            whole = raw.endswith(b"\n") or len(raw) < MAX_LINE_BYTES
            piece, length = raw, len(raw)
            while len(piece) == MAX_LINE_BYTES and not piece.endswith(b"\n"):
                piece = file.readline(MAX_LINE_BYTES)
                length += len(piece)
                if length > LONGEST_LINE:
                    limit = f"over {LONGEST_LINE >> 20} MiB long"
                    raise CorpusError(f"{path}, line {number}: {limit}; wanted lines of text")
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            yield number, raw.removesuffix(b"\n").removesuffix(b"\r") if whole else None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{path}, line {number}: {' '.join(str(error).split())}") from None
    finally:
        if str(path) != "-":
            file.close()


def decode_line(raw: bytes | None) -> tuple[str, str | None]:
    """The text of a line and what is wrong with it, None if nothing is."""
    if raw is None:
        return "", TOO_LONG
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "", NOT_UTF8
    if "\0" in text:
        return "", NUL
    return text, None if text.strip() else EMPTY
