"""Compressed text is read in bounded memory and linear time, and what does not belong in it is an error."""

import lzma
import random
import time
import tracemalloc

import pytest

from rela.data import corpus
from rela.data.compressed import open_xz, open_zst
from rela.data.corpus import CorpusError, raw_lines, read_lines

zstandard = pytest.importorskip("zstandard")  # not on every GPU machine, where these files are collected, too

TEXT = "".join(f"line {number} of a text\n" for number in range(2000)).encode()
COMPRESS = {".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
OPEN = {".xz": open_xz, ".zst": open_zst}
SUFFIXES = pytest.mark.parametrize("suffix", [".xz", ".zst"])


@SUFFIXES
def test_several_streams_are_one_text_in_any_read(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    pieces = [TEXT, b"", TEXT[::-1], bytes(random.Random(1).randbytes(200_000))]
    path.write_bytes(b"".join(map(COMPRESS[suffix], pieces)))
    with OPEN[suffix](path) as file:
        assert file.read() == b"".join(pieces)
    with OPEN[suffix](path) as file:
        parts = iter(lambda: file.read(977), b"")
        assert b"".join(parts) == b"".join(pieces)


def test_padding_between_xz_streams_is_no_text(tmp_path):
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(TEXT) + b"\0" * 8 + lzma.compress(TEXT) + b"\0" * 70_000)
    assert b"".join(raw + b"\n" for _, raw in raw_lines(path)) == TEXT * 2


@SUFFIXES
@pytest.mark.parametrize("after", [b"more", b"\x01" * 100_000, TEXT])
def test_other_data_after_the_end_is_an_error(tmp_path, suffix, after):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT) + after)
    with pytest.raises(CorpusError, match=rf"text{suffix}, line \d+: "):
        list(raw_lines(path))


@SUFFIXES
def test_a_file_cut_anywhere_is_an_error(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    whole = COMPRESS[suffix](TEXT)
    for length in (1, 3, 7, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorpusError, match=rf"text{suffix}, line \d+: "):
            list(raw_lines(path))
    path.write_bytes(b"")
    assert list(raw_lines(path)) == []


@SUFFIXES
def test_what_expands_a_thousandfold_takes_no_more_memory(tmp_path, suffix):
    """24 MB of one line again and again, from a few kilobytes."""
    path = tmp_path / f"bomb{suffix}"
    line = b"all work and no play " * 50 + b"\n"
    path.write_bytes(COMPRESS[suffix](line * (24_000_000 // len(line))))
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    count = sum(raw == line[:-1] for _, raw in raw_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 24_000_000 // len(line)
    assert peak < 40e6


def test_the_time_for_zst_grows_as_the_text_does(tmp_path):
    def seconds(size):
        path = tmp_path / f"{size}.zst"
        path.write_bytes(COMPRESS[".zst"](b"x" * size))
        began = time.process_time()
        with open_zst(path) as file:
            assert sum(map(len, iter(lambda: file.read(1 << 17), b""))) == size
        return time.process_time() - began

    seconds(1 << 20)
    # 16 times as much took 256 times as long when the rest of a chunk was copied for each read
    assert seconds(1 << 27) < 64 * max(seconds(1 << 23), 0.005)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_what_never_ends_is_one_line(device, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST_LINE", 1 << 24)
    with pytest.raises(CorpusError, match=rf"{device}, line 1: over 16 MiB long; wanted lines of text"):
        list(read_lines(device))
