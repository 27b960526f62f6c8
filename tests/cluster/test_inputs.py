"""Shards hold every row of a corpus once, as one process reads them, whatever their size."""

from __future__ import annotations

import pytest

from rela.cluster.inputs import read_shard, shards_of
from rela.data.corpus import MAX_LINE_BYTES, CorpusError, raw_lines

TEXT = b"\xef\xbb\xbfone\ntwo\r\n\n\xff\xfe\nlast but one\n" + "fünf".encode()
LONG = b"x" * (MAX_LINE_BYTES + 5)


@pytest.mark.parametrize("text", [TEXT, TEXT + b"\n", b"", b"\n", b"a\n" + LONG + b"\nb\n", LONG, LONG[:-5]])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_lines_are_those_of_the_file(tmp_path, text, rows):
    path = tmp_path / "text"
    path.write_bytes(text)
    shards = shards_of([path], rows)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert all(shard.rows == rows for shard in shards[:-1])
    found = [row for shard in shards for row in read_shard(shard)]
    assert found == [(line,) for _, line in raw_lines(path)]
    assert [shard.first for shard in shards] == [sum(shard.rows for shard in shards[:i]) for i in range(len(shards))]


def test_two_texts_go_together(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"a\nb\nc\nd\ne\n")
    other.write_bytes(b"1\n22\n333\n4\n55")
    rows = [row for shard in shards_of([one, other], 2) for row in read_shard(shard)]
    assert rows == [(b"a", b"1"), (b"b", b"22"), (b"c", b"333"), (b"d", b"4"), (b"e", b"55")]
    other.write_bytes(b"1\n2\n")
    with pytest.raises(CorpusError, match=r"unequal line counts: .*one has 5, .*other has 2"):
        shards_of([one, other], 2)


def test_a_file_that_changed_is_noticed(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\nc\n")
    (shard,) = shards_of([path], 10)
    path.write_bytes(b"a\nbbbbbb\n")
    with pytest.raises(CorpusError, match="has changed: a shard has 2 rows; wanted 3"):
        read_shard(shard)


def test_what_cannot_be_cut_is_refused(tmp_path):
    (tmp_path / "text.gz").write_bytes(b"")
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"")
    for files, message in (
        (["text.gz"], "is compressed"),
        (["nothing"], "is no file"),
        (["text", "a.jsonl"], "are a table and another file"),
    ):
        with pytest.raises(ValueError, match=message):
            shards_of([tmp_path / file for file in files], 2)
    with pytest.raises(ValueError, match="shard-lines is 0; wanted at least 1"):
        shards_of([tmp_path / "text"], 0)
