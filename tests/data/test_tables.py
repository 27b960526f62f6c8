"""Tables of sentence pairs are read as the texts they were made of."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from rela.data.corpus import CorpusError, raw_pairs
from rela.data.tables import is_table, parquet_rows, table_rows
from tests.tiny_models import toy_pairs

PAIRS = toy_pairs(11)


@pytest.fixture
def tables(tmp_path):
    """The same pairs as Parquet in groups of three, and as JSON lines."""
    columns = {"target": [pair[1] for pair in PAIRS], "source": [pair[0] for pair in PAIRS], "n": list(range(11))}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "pairs.parquet", row_group_size=3)
    lines = [json.dumps({"source": source, "target": target, "more": 1}) for source, target in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [tmp_path / "pairs.parquet", tmp_path / "pairs.jsonl"]


def test_pairs_of_a_table(tables):
    packed = tables[1].with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(tables[1].read_bytes()))
    wanted = [(source.encode(), target.encode()) for source, target in PAIRS]
    for table in (*tables, packed):
        assert is_table(table)
        assert list(table_rows(table, ("source", "target"))) == wanted
        assert [row[1:] for row in raw_pairs(table, table)] == wanted


@pytest.mark.parametrize(("begin", "end"), [(0, 11), (2, 4), (3, 6), (5, 11), (10, 11), (4, 4)])
def test_rows_from_the_middle_of_parquet(tables, begin, end):
    rows = list(parquet_rows(tables[0], ("source",), begin, end))
    assert rows == [(source.encode(),) for source, _ in PAIRS[begin:end]]


def test_a_row_is_one_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"source": "one\ntwo\u2028three", "target": None}) + "\n")
    assert list(table_rows(path, ("source", "target"))) == [(b"one two three", b"")]


def test_what_is_no_table_of_text_is_one_line(tmp_path, tables):
    path = tmp_path / "x.jsonl"
    for text in ("no json", '{"source": 3}', '["a"]', '{"target": "a"}', "[" * 100_000):
        path.write_text(f'{{"source": "a"}}\n{text}\n')
        with pytest.raises(CorpusError, match=r"x.jsonl, line 2: no JSON object with text for source"):
            list(table_rows(path, ("source",)))
    with pytest.raises(CorpusError, match="has no column words; it has target, source, n"):
        list(table_rows(tables[0], ("words",)))
    with pytest.raises(CorpusError, match="a column of n is not text"):
        list(table_rows(tables[0], ("n",)))
    path = tmp_path / "x.parquet"
    path.write_bytes(b"something else")
    with pytest.raises(CorpusError, match=r"x.parquet: "):
        list(table_rows(path, ("source",)))
