"""Text in: compressed forms, and what becomes of lines that are no text."""

import gzip
import io
import lzma
from collections import Counter

import pytest

from rela.data import corpus
from rela.data.corpus import CorpusError, is_empty, read_lines, read_pairs

zstandard = pytest.importorskip("zstandard")  # not on every GPU machine, where these files are collected, too
WRITERS = {
    "txt": lambda data: data,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
LINES = [f"Zeile {number} – ein Satz" for number in range(20_000)]
TEXT = "".join(line + "\n" for line in LINES).encode()


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_form_gives_the_same_lines(write, suffix):
    assert list(read_lines(write(f"a.{suffix}", WRITERS[suffix](TEXT)))) == LINES


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_concatenated_archives_are_read_to_the_end(write, suffix):
    assert list(read_lines(write(f"a.{suffix}", WRITERS[suffix](b"a\n") + WRITERS[suffix](b"b\n")))) == ["a", "b"]


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_a_truncated_archive_is_an_error_with_file_and_line(write, suffix):
    whole = WRITERS[suffix](TEXT)
    path = write(f"a.{suffix}", whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=rf"a\.{suffix}, line \d+: "):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_plain_text_with_a_wrong_suffix_is_an_error(write, suffix):
    with pytest.raises(CorpusError, match=rf"a\.{suffix}, line 1: "):
        list(read_lines(write(f"a.{suffix}", TEXT)))


def test_line_ends_byte_order_mark_and_unicode_separators(write):
    # only LF ends a line: U+2028 and form feed belong to the text, or the two sides would slip
    path = write("a", "\ufeffa\r\nb\u2028c\x0cd\n\ne".encode())
    assert list(read_lines(path)) == ["a", "b\u2028c\x0cd", "", "e"]


@pytest.mark.parametrize(("bad", "reason"), [(b"\xff\xfe", "not UTF-8"), (b"a\0b", "NUL character")])
def test_a_line_that_is_no_text_is_named(write, bad, reason):
    with pytest.raises(CorpusError, match=f"a, line 2: {reason}"):
        list(read_lines(write("a", b"fine\n" + bad + b"\nfine\n")))


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(CorpusError, match=r"absent\.xz: No such file"):
        list(read_lines(tmp_path / "absent.xz"))
    with pytest.raises(CorpusError, match="Is a directory"):
        list(read_lines(tmp_path))


def test_bad_pairs_are_skipped_and_counted_once_each(write):
    source = write("a", b"one\n\n\xff\n \t\nfive\nsix\n")
    target = write("b", b"eins\nzwei\n\nvier\nf\0nf\nsechs\n")
    counts = Counter()
    assert list(read_pairs(source, target, counts=counts)) == [("one", "eins"), ("six", "sechs")]
    assert counts == {"empty": 2, "not UTF-8": 1, "NUL character": 1}


def test_bad_pairs_raise_when_told_so(write):
    good, bad = write("a", b"one\ntwo\n"), write("b", b"eins\n\n")
    with pytest.raises(CorpusError, match="b, line 2: empty"):
        list(read_pairs(good, bad, on_bad_line="raise"))
    with pytest.raises(ValueError, match="on_bad_line is 'stop'"):
        list(read_pairs(good, bad, on_bad_line="stop"))


@pytest.mark.parametrize("lengths", [(3, 5), (5, 3), (0, 1)])
@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_unequal_line_counts_name_both_files_and_counts(write, lengths, policy):
    source, target = (write(name, b"x\n" * count) for name, count in zip("ab", lengths, strict=True))
    with pytest.raises(CorpusError, match=rf"a has {lengths[0]}, .*b has {lengths[1]}$"):
        list(read_pairs(source, target, policy))


def test_a_line_too_long_for_memory_is_read_past(write, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 64)
    source = write("a", b"one\n" + b"x" * 1000 + b"\nthree\n")
    counts = Counter()
    assert list(read_pairs(source, source, counts=counts)) == [("one", "one"), ("three", "three")]
    assert counts.total() == 1
    with pytest.raises(CorpusError, match="a, line 2: line over"):
        list(read_lines(source))


def test_standard_input_as_lines_and_as_tab_separated_pairs(write, monkeypatch):
    def give(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    give(b"a\nb\n")
    assert list(read_lines("-")) == ["a", "b"]
    give(b"a\nb\n")
    assert list(read_pairs("-", write("t", b"A\nB\n"))) == [("a", "A"), ("b", "B")]
    give(b"a\tA\nno tab\nb\tB\textra\n")
    counts = Counter()
    assert list(read_pairs("-", "-", counts=counts)) == [("a", "A"), ("b", "B\textra")]
    assert counts == {"empty": 1}


@pytest.mark.parametrize(
    ("data", "named"),
    [(b"a\tA\t0.9\nb\tB\t0.8\n", "3 columns"), (b"no tab\na\tA\n", "one column"), (b"\ta\tA\n", "3 columns")],
)
def test_pairs_from_standard_input_with_other_columns_are_refused(data: bytes, named: str, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(CorpusError, match=f"line 1: {named} separated by tabs; wanted two"):
        list(read_pairs("-", "-"))


@pytest.mark.parametrize("data", [b"", b"\n", b"\na\tA\n", b"a\tA", b"\tA\n"])
def test_the_first_line_of_standard_input_may_be_empty(data: bytes, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert list(read_pairs("-", "-")) == [("a", "A")] * data.count(b"a")


@pytest.mark.parametrize(
    ("source", "target", "empty"),
    [("a", "b", False), ("", "b", True), ("a", "", True), ("", "", True), (" \t", "b", True), ("a", "\u3000\n", True)],
)
def test_a_pair_is_empty_if_one_side_has_no_words(source: str, target: str, empty: bool):
    assert is_empty(source, target) == empty
