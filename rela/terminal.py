"""What the command line shows and reads: progress bars, lines in, lines out."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from rela.files import replacing
from rela.interrupts import CODE
from rela.progress import Progress


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress on stderr: bars on a terminal, elsewhere a line every few seconds."""
    if not sys.stderr.isatty():
        yield lines_of_progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    ]
    tasks: dict[str, Any] = {}
    # What goes to a file or a pipe must not be drawn above the bars instead.
    with Bars(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()) as bars:

        def tell(stage: str, done: int, total: int | None, note: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, note=note)
            bars.update(tasks[stage], completed=done, total=total, note=note)

        yield tell


def lines_of_progress(seconds: float = 10.0) -> Progress:
    """A line for a stage when its last one is some seconds old; what is done sooner needs none."""
    said: dict[str, float] = {}

    def tell(stage: str, done: int, total: int | None, note: str = "") -> None:
        now = time.monotonic()
        if now - said.setdefault(stage, now) >= seconds:
            said[stage] = now
            of = f" of {total:,}" if total else ""
            print(f"{stage}: {done:,}{of} {note}".rstrip(), file=sys.stderr, flush=True)

    return tell


class RepeatedLines:
    """An iterator over lines that also hands each one out again, in order, when its translation is printed."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.seen = iter(lines), deque[str]()

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.seen.append(line)
            yield line

    def take(self) -> str:
        """The oldest line that was not taken yet."""
        return self.seen.popleft()


@contextlib.contextmanager
def output_lines(path: Path | None, stage: str | None = None) -> Iterator[Callable[[str], None]]:
    """A writer of lines to stdout, or to a file that appears only when it is complete.

    With a `stage`, such as "translated", the lines are counted on a terminal that does not show them.
    """
    to_stdout = path is None or str(path) in ("-", "/dev/stdout")  # whose file, opened again, would be emptied
    with counted(stage, shown=to_stdout and sys.stdout.isatty()) as count:
        if path is None or to_stdout:

            def write(line: str) -> None:
                print(line, flush=True)
                count()

            yield write
            return
        if path.is_dir():  # refused now, and not after hours of work
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        with replacing(path) as partial, open(partial, "w", encoding="utf-8") as file:

            def write_to_file(line: str) -> None:
                print(line, file=file)
                count()

            yield write_to_file


@contextlib.contextmanager
def counted(stage: str | None, shown: bool) -> Iterator[Callable[[], None]]:
    """A function to call for each line that is done: counts on stderr, if that is a terminal without the lines."""
    if stage is None or shown or not sys.stderr.isatty():
        yield lambda: None
        return
    done, said = 0, 0.0
    with progress_bars() as progress:

        def count() -> None:
            nonlocal done, said
            done += 1
            if time.monotonic() - said > 0.1:
                said = time.monotonic()
                progress(stage, done, None)

        yield count
        progress(stage, done, done)


def prompted(lines: Iterable[str]) -> Iterator[str]:
    """Lines typed at a prompt, one prompt a line."""
    print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    stream = iter(lines)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = next(stream, None)
        if line is None:
            print(file=sys.stderr)
            return
        yield line


def input_lines(path: Path | None) -> Iterator[str]:
    """Lines of a file (compressed or not) or of stdin, without their ends; of a table its column `source`."""
    from rela.data.corpus import read_lines, text_of
    from rela.data.tables import COLUMNS, is_table, table_rows

    if path is None or not is_table(path):
        return read_lines("-" if path is None else path)
    rows = enumerate(table_rows(path, COLUMNS[:1]), start=1)
    return (text_of(path, number, text) for number, (text,) in rows)


def check_format(format: str, *known: str) -> None:
    if format not in known:
        raise ValueError(f"format is {format!r}; wanted {' or '.join(known)}")


def chunked(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items in lists of `size`, the last one shorter."""
    from itertools import islice

    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


def paired_lines(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The n-th lines of two files, empty ones too; files of unequal length are an error at their end.

    One table given twice has the sides in two columns; two times "-" are tab-separated pairs of the standard input.
    """
    from rela.data.corpus import raw_pairs, text_of

    for number, left, right in raw_pairs(source, target):
        yield text_of(source, number, left), text_of(target, number, right)


def fail(message: str, code: int = 2) -> NoReturn:
    """End the program with one line on stderr."""
    print(f"rela: error: {message}", file=sys.stderr)
    raise SystemExit(code) from None


def end_interrupted(message: str = "interrupted") -> NoReturn:
    """End the program as Ctrl-C asks for, which is no error."""
    print(f"rela: {message}", file=sys.stderr)
    raise SystemExit(CODE) from None


def reopen_closed_streams() -> None:
    """Give the program the standard streams that it was started without.

    The next file that is opened would take their numbers, and what a library prints would be written into it. Reading
    from a missing stdin and writing to a missing stdout are errors; what goes to a missing stderr is thrown away.
    """
    for number, (name, flags, mode) in enumerate(
        (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
    ):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for the whole run)


def printable(text: object) -> str:
    """Text that can be written as UTF-8: the bytes of a file name that are no UTF-8 are written as escapes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
