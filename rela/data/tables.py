"""Tables of sentences: Parquet and JSON lines, whose columns `source` and `target` are text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rela.data.corpus import CorpusError, open_text
from rela.files import parse_json

COLUMNS = ("source", "target")
PARQUET, JSON_LINES = ".parquet", ".jsonl"
COMPRESSED_JSON = (".jsonl.gz", ".jsonl.xz", ".jsonl.zst")


def is_table(path: str | Path) -> bool:
    """Whether a file is a table, by its name."""
    return Path(path).name.endswith((PARQUET, JSON_LINES, *COMPRESSED_JSON))


def check_tables(paths: Sequence[str | Path]) -> None:
    """Refuse the two sides of a corpus if they are a table and another file: a table has both sides."""
    if any(map(is_table, paths)) and len(set(map(str, paths))) > 1:
        raise CorpusError(
            f"{' and '.join(map(str, paths))} are a table and another file; wanted two texts, or one table twice"
        )


def table_rows(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[bytes, ...]]:
    """The wanted columns of each row, as UTF-8."""
    if Path(path).suffix == PARQUET:
        yield from parquet_rows(path, columns, 0, None)
        return
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            yield json_row(path, number, line, columns)


def json_row(path: str | Path, number: int, line: bytes, columns: Sequence[str]) -> tuple[bytes, ...]:
    """The wanted columns of one line of JSON."""
    try:
        row: Any = parse_json(line)
        return tuple(as_bytes(row[column]) for column in columns)
    except (ValueError, KeyError, TypeError):
        wanted = " and ".join(columns)
        raise CorpusError(f"{path}, line {number}: no JSON object with text for {wanted}") from None


def parquet_rows(path: str | Path, columns: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[bytes, ...]]:
    """The wanted columns of the rows from `begin` up to `end`, read row group by row group."""
    file = open_parquet(path)
    if missing := [column for column in columns if column not in file.schema_arrow.names]:
        raise CorpusError(f"{path} has no column {' and '.join(missing)}; it has {', '.join(file.schema_arrow.names)}")
    first = 0
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if first + count > begin and (end is None or first < end):
            low, high = max(begin - first, 0), count if end is None else min(end - first, count)
            table = file.read_row_group(group, columns=list(columns)).slice(low, high - low)
            sides = [table.column(column).to_pylist() for column in columns]
            try:
                yield from ((*map(as_bytes, row),) for row in zip(*sides, strict=True))
            except TypeError:
                raise CorpusError(f"{path}: a column of {', '.join(columns)} is not text") from None
        first += count


def open_parquet(path: str | Path) -> Any:
    """A Parquet file, opened."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'rela-attention[ray]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise CorpusError(f"{path}: {' '.join(str(error).split())}") from None


def as_bytes(value: Any) -> bytes:
    """Text as UTF-8; nothing for a missing value. A line end within a row would become two rows, so it is a space."""
    if value is None:
        return b""
    if not isinstance(value, str):
        raise TypeError
    return " ".join(value.splitlines()).encode("utf-8", "surrogatepass")
