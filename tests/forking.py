"""Commands of `rela`, or functions, in forks of this process: milliseconds, where importing torch takes seconds.

Of the test only the imported modules are left in it: streams, warnings and signals are those of a program. What happens
while Python itself ends (threads that still run, the streams' last flush) is not seen: that wants a new process.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch

from rela.cli import main


class Forked:
    """A command that runs; as `subprocess.Popen` with text, and outputs kept in memory unless they go elsewhere."""

    def __init__(
        self,
        command: Sequence[object] | Callable[[], None],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        close: Sequence[int] = (),
        preexec_fn: Callable[[], None] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.stdout = os.memfd_create("stdout") if stdout is None else stdout
        self.stderr = os.memfd_create("stderr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12, of forks where there are threads
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                for file in close:  # this side's ends of pipes
                    os.close(file)
                status = run(command, stdin, self.stdout, self.stderr, preexec_fn)
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 300.0) -> tuple[str, str]:
        """Wait for the end; what was written to stdout, if that is kept, and to stderr."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.send_signal(signal.SIGKILL)
                raise TimeoutError(f"the command did not end within {timeout:g} seconds")
            time.sleep(0.002)
        return read_all(self.stdout), read_all(self.stderr)


def forked_group(commands: Sequence[Sequence[object] | Callable[[], None]]) -> list[Forked]:
    """Commands that run as the processes of one group, with the environment that torchrun gives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def environment(rank: int) -> None:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(commands), "MASTER_PORT": port}
        os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")

    return [Forked(command, preexec_fn=partial(environment, rank)) for rank, command in enumerate(commands)]


def read_all(file: int) -> str:
    """What is in a file in memory; nothing of a pipe, which somebody else reads."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
    except OSError:
        return ""
    with open(file, "rb") as stream:
        return stream.read().decode("utf-8", "replace")


def run(
    command: Sequence[object] | Callable[[], None],
    stdin: int | None,
    stdout: int,
    stderr: int,
    first: Callable[[], None] | None,
) -> int:
    """Turn this process, a fork, into a program that runs a command; its exit code."""
    streams = (os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, stdout, stderr)
    for number, file in enumerate(streams):
        os.dup2(file, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    torch.set_num_threads(1)  # the threads of the process that was forked are not here
    if first is not None:
        first()
    try:
        if callable(command):
            command()
            return 0
        main([str(word) for word in command])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
    return 1
