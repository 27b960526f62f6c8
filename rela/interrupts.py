"""Ctrl-C without tracebacks: the first ends the command, the second, or one within an import, the program at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

CODE = 130
"""The exit code of a program that was interrupted: 128 and the signal's number."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file that Python names for the code that imports modules."""


class Interrupts:
    """Whether SIGINT came while this listened."""

    def __init__(self) -> None:
        self.came = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.came:  # the user does not want to wait for what the first one ended
            os._exit(CODE)
        self.came = True
        if is_importing(frame):  # C++ code that an import runs cannot pass an exception on: PyTorch's aborts
            with contextlib.suppress(OSError):
                os.write(2, b"rela: interrupted\n")
            os._exit(CODE)
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


def is_importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one of its callers, belongs to Python's import system."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


def end_quietly_on_interrupt() -> None:
    """Give SIGINT its default action again, which ends the program without a traceback."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
