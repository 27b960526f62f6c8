"""Ctrl-C without tracebacks: the first ends the command, the second ends the program at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

CODE = 130
"""The exit code of a program that was interrupted: 128 and the signal's number."""


class Interrupts:
    """Whether SIGINT came while this listened."""

    def __init__(self) -> None:
        self.came = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.came:  # the user does not want to wait for what the first one ended
            os._exit(CODE)
        self.came = True
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within this, SIGINT is handled here; one that is ignored, as under nohup, stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self.handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def end_quietly_on_interrupt() -> None:
    """Give SIGINT its default action again, which ends the program without a traceback."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
