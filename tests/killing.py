"""Calls in processes that are killed by SIGKILL: at the n-th file-system event of the call, or after some time.

`Killer` starts one process that imports what the calls need; each call is then a fork of it, which costs milliseconds
where importing torch costs seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree")
"""Python's audit events at which a process may be killed, if they name a path in the watched folder."""


@dataclass(frozen=True)
class Ending:
    """How a call ended."""

    killed: bool
    status: int
    """The exit status of a call that was not killed."""
    seconds: float
    errors: str
    """What it wrote to stderr."""
    events: int
    """File-system events of the call."""


class Killer:
    """Forks of one process, each of which makes a call and may be killed while it does."""

    def __init__(self, folder: Path, preload: list[str]) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        line = [sys.executable, "-m", "tests.killing", str(folder), *preload]
        self.process = subprocess.Popen(
            line, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(self, function: str, *arguments: Any, event: int | None = None, seconds: float | None = None) -> Ending:
        """Call "module:function" with arguments that JSON can hold; killed before `event`, or after `seconds`."""
        request = {"function": function, "arguments": arguments, "event": event, "seconds": seconds}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Ending(**json.loads(self.process.stdout.readline()))

    def rela(self, *arguments: object, event: int | None = None, seconds: float | None = None) -> Ending:
        """Run a command of `rela`."""
        return self.call("rela.cli:main", list(map(str, arguments)), event=event, seconds=seconds)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


@contextlib.contextmanager
def killer(folder: Path, *preload: str) -> Iterator[Killer]:
    """A Killer of calls that work in a folder, with modules imported beforehand."""
    started = Killer(folder, list(preload))
    try:
        yield started
    finally:
        started.close()


def serve(folder: str) -> None:
    """Answer requests, one a line, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    events = mmap.mmap(-1, 8)  # shared with the forks
    for line in sys.stdin:
        request = json.loads(line)
        events[:] = struct.pack("q", 0)
        began = time.monotonic()
        with open(os.devnull, "w") as nowhere, open(os.memfd_create("errors"), "w+b") as errors:
            child = os.fork()
            if child == 0:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os._exit(perform(request, folder, events))
            status = wait(child, request["seconds"])
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        code = 0 if killed else os.waitstatus_to_exitcode(status)
        ending = {"killed": killed, "status": code, "seconds": time.monotonic() - began, "errors": said}
        ending["events"] = struct.unpack("q", events[:])[0]
        print(json.dumps(ending), file=answers, flush=True)


def wait(child: int, seconds: float | None) -> int:
    """The status with which a process ends, by itself or killed after `seconds`."""
    if seconds is not None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def perform(request: dict[str, Any], folder: str, events: mmap.mmap) -> int:
    """Make the call of a request in this process; its exit status."""
    sys.addaudithook(killing_hook(folder, request["event"], events))
    module, _, name = request["function"].partition(":")
    status = 0
    try:
        getattr(importlib.import_module(module), name)(*request["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def killing_hook(folder: str, wanted: int | None, events: mmap.mmap) -> Any:
    """An audit hook that counts events and kills this process at the one of that number."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in EVENTS and arguments and folder in str(arguments[0]):
            count += 1
            events[:] = struct.pack("q", count)
            if count == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


if __name__ == "__main__":
    for preloaded in sys.argv[2:]:
        importlib.import_module(preloaded)
    serve(sys.argv[1])
