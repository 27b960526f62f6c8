"""A corpus cut into shards of consecutive rows, which any worker can read by itself: text, JSON lines or Parquet.

Workers read the corpus where it lies, so it must be on a file system that all of them see; only the byte ranges of the
shards travel. A line of text is what rela.data.corpus calls one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rela.data.corpus import MAX_LINE_BYTES, CorpusError
from rela.data.tables import COLUMNS, PARQUET, check_tables, is_table, json_row, open_parquet, parquet_rows

Row = tuple[bytes | None, ...]
"""One sentence, or the two of a pair; None for a line too long to hold."""
COMPRESSED = (".gz", ".xz", ".zst", ".bz2")


@dataclass(frozen=True)
class FileRange:
    """A part of a file: bytes of text and JSON lines, rows of Parquet."""

    path: str
    begin: int
    end: int


@dataclass(frozen=True)
class Shard:
    """Consecutive rows of a corpus, and where they are: in one table, or in a text file for each side."""

    number: int
    first: int
    """The number of its first row in the corpus, from 0."""
    rows: int
    ranges: tuple[FileRange, ...]
    sides: int
    """1 for sentences, 2 for pairs."""


def shards_of(files: Sequence[str | Path], rows: int) -> list[Shard]:
    """The shards of `rows` rows of a corpus: one text, two texts line by line, or one table (twice, for its pairs)."""
    if rows < 1:
        raise ValueError(f"shard-lines is {rows}; wanted at least 1")
    paths = [Path(file) for file in files]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} is no file; a corpus that many workers read cannot be a stream or a folder")
        if path.suffix in COMPRESSED:
            raise ValueError(f"{path} is compressed; workers read from the middle: wanted plain text, .jsonl, .parquet")
    check_tables(paths)
    cuts = [list(cut(path, rows)) for path in dict.fromkeys(paths)]
    check_equal_lengths(paths, cuts)
    shards, first = [], 0
    for number, ranges in enumerate(zip(*cuts, strict=True)):
        count = ranges[0][1]
        shards.append(Shard(number, first, count, tuple(part for part, _ in ranges), len(paths)))
        first += count
    return shards


def check_equal_lengths(paths: list[Path], cuts: list[list[tuple[FileRange, int]]]) -> None:
    """Two texts must have equally many lines."""
    totals = [sum(count for _, count in ranges) for ranges in cuts]
    if len(set(totals)) > 1:
        raise CorpusError(f"unequal line counts: {paths[0]} has {totals[0]}, {paths[1]} has {totals[1]}")


def cut(path: Path, rows: int) -> Iterator[tuple[FileRange, int]]:
    """Ranges of `rows` rows each, the last of fewer, and how many they have."""
    if path.suffix == PARQUET:
        total = open_parquet(path).metadata.num_rows
        for begin in range(0, total, rows):
            end = min(begin + rows, total)
            yield FileRange(str(path), begin, end), end - begin
        return
    begin = position = count = 0
    with path.open("rb") as file:
        while raw := file.readline(MAX_LINE_BYTES):
            position += len(raw)
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                continue  # a line too long to hold goes on
            count += 1
            if count == rows:
                yield FileRange(str(path), begin, position), count
                begin, count = position, 0
        if position > begin:
            ends_early = count == 0  # a last line of a multiple of MAX_LINE_BYTES, without its end
            yield FileRange(str(path), begin, position), count + ends_early


def read_shard(shard: Shard) -> list[Row]:
    """The rows of a shard."""
    path = Path(shard.ranges[0].path)
    columns = COLUMNS[: shard.sides]
    part = shard.ranges[0]
    if path.suffix == PARQUET:
        rows: list[Row] = list(parquet_rows(path, columns, part.begin, part.end))
    elif is_table(path):
        lines = read_lines_at(part)
        numbered = enumerate(lines, shard.first + 1)
        rows = [json_row(path, number, line or b"", columns) for number, line in numbered]
    else:
        rows = list(zip(*(read_lines_at(part) for part in shard.ranges), strict=True))
    if len(rows) != shard.rows:
        raise CorpusError(f"{path} has changed: a shard has {len(rows)} rows; wanted {shard.rows}, as were counted")
    return rows


def read_lines_at(part: FileRange) -> list[bytes | None]:
    """The lines in a range of bytes of a file, without their ends."""
    with open(part.path, "rb") as file:
        file.seek(part.begin)
        data = file.read(part.end - part.begin)
    if part.begin == 0:
        data = data.removeprefix(b"\xef\xbb\xbf")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") if len(line) < MAX_LINE_BYTES else None for line in lines]
