"""What the command line shows and reads: lines of progress, lines in, lines out."""

import io
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela import terminal


def test_a_line_of_progress_when_its_last_is_old(capsys):
    tell = terminal.lines_of_progress(seconds=0.0)
    tell("read", 1200, 5000, "fine")
    tell("write", 7, None)
    assert capsys.readouterr().err == "read: 1,200 of 5,000 fine\nwrite: 7\n"
    tell = terminal.lines_of_progress(seconds=3600.0)
    tell("read", 1, 2)
    tell("read", 2, 2)
    assert capsys.readouterr().err == ""


def test_repeated_lines_are_handed_out_again_in_order():
    lines = terminal.RepeatedLines(["a", "b", "c"])
    stream = iter(lines)
    assert [next(stream), next(stream)] == ["a", "b"]
    assert [lines.take(), lines.take()] == ["a", "b"]
    assert next(stream) == lines.take() == "c"


def test_an_output_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "out.txt"
    with terminal.output_lines(path) as write:
        write("eins")
        assert not path.exists()
        write("zwei")
    assert path.read_text() == "eins\nzwei\n"
    with pytest.raises(IsADirectoryError), terminal.output_lines(tmp_path):
        pass
    with pytest.raises(OSError, match="none/out"), terminal.output_lines(tmp_path / "none" / "out"):
        pass


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_that_a_terminal_does_not_show_are_counted_on_it(tmp_path, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.output_lines(tmp_path / "out", "translated") as write:
        for line in ("eins", "zwei", "drei"):
            write(line)
    assert "translated" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert (tmp_path / "out").read_text() == "eins\nzwei\ndrei\n"


def test_lines_for_a_pipe_go_there_while_a_terminal_counts_them(monkeypatch, capsys):
    """As in `rela translate model text > file`."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.output_lines(None, "translated") as write:
        write("eins")
    assert capsys.readouterr().out == "eins\n"
    assert "translated" in screen.getvalue()
    assert "eins" not in screen.getvalue()


def test_lines_are_not_counted_elsewhere(tmp_path, capfd):
    with terminal.output_lines(tmp_path / "out", "translated") as write:
        write("eins")
    assert capfd.readouterr() == ("", "")


def test_typed_lines_are_prompted_for(capsys):
    lines = terminal.prompted(["eins", "zwei"])
    assert next(lines) == "eins"
    assert capsys.readouterr().err == "one sentence a line; Ctrl-D ends\n> "
    assert list(lines) == ["zwei"]
    assert capsys.readouterr().err == "> > \n"


@given(items=st.lists(st.integers()), size=st.integers(1, 5))
def test_chunks_are_all_items_and_all_but_the_last_are_full(items: list[int], size: int):
    chunks = list(terminal.chunked(items, size))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(chunks)


def test_paired_files_must_be_equally_long(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("x\n\n")
    assert list(terminal.paired_lines(tmp_path / "a", tmp_path / "b")) == [("1", "x"), ("2", "")]
    (tmp_path / "b").write_text("x\n")
    with pytest.raises(ValueError, match=r"unequal line counts: .*a has 2, .*b has 1"):
        list(terminal.paired_lines(tmp_path / "a", tmp_path / "b"))


def test_formats_and_failures_are_one_line(capsys):
    terminal.check_format("json", "text", "json")
    with pytest.raises(ValueError, match="format is 'xml'; wanted text or json"):
        terminal.check_format("xml", "text", "json")
    with pytest.raises(SystemExit) as end:
        terminal.fail("no such thing", 3)
    assert end.value.code == 3
    assert capsys.readouterr().err == "rela: error: no such thing\n"


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "output", "error"),
    [
        ("<&- >&-", "data list", 2, False, True),
        (">&-", "--version", 2, False, True),
        ("2>&-", "nonsense", 2, False, False),
        ("<&- 2>&-", "data list", 0, True, False),
    ],
)
def test_a_closed_standard_stream_is_an_error_only_where_it_is_used(tmp_path, closed, arguments, code, output, error):
    command = f"exec {shlex.quote(sys.executable)} -m rela {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert (done.returncode, bool(done.stdout)) == (code, output)
    assert done.stderr == (b"rela: error: Bad file descriptor\n" if error else b"")


def test_names_that_are_not_utf8_are_escaped():
    assert terminal.printable("f\udcff") == "f\\udcff"
    assert terminal.printable("Füße") == "Füße"
