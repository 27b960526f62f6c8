"""Several processes that share the runs of a grid and one device.

A run leaves the device idle while it starts, compiles, evaluates and analyses. Meanwhile another run can train. Each
process goes through the whole grid and does the runs that no other process has claimed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rela.files import lock


@contextlib.contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Whether this process alone holds `name` until the body ends; False where another process holds it."""
    claims = folder / ".claims"
    claims.mkdir(parents=True, exist_ok=True)
    with (claims / name.replace("/", "-")).open("w") as file:
        try:
            lock(file.fileno(), "")
        except ValueError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def others(count: int, arguments: Sequence[str], started: float) -> Iterator[None]:
    """`count` more processes with this command line, waited for when the body ends, ended when it fails.

    Their time budget counts from the same moment of the monotonic clock, `started`.
    """
    own = ["--workers-of", str(count + 1), "--started", str(started)]
    command = [sys.executable, "-m", "experiments", *arguments, *own]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.terminate()
            process.wait()
