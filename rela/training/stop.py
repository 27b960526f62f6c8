"""Stopping a run from outside: by SIGINT (Ctrl-C) or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether the run has been asked to stop after its current step.

    A second signal ends it within the step, as soon as a checkpoint that is being written is complete.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def from_signals(self) -> Iterator[None]:
        """Within this, SIGINT and SIGTERM set `asked`; in the main thread only, where Python allows it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
