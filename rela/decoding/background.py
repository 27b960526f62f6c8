"""Work done while something else is under way: in a thread, or in pieces while the device computes."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any


class Background:
    """A call that runs in its own thread; `result` waits for it and raises what it raised.

    The thread is a daemon unless told otherwise: one that waits for a line of input never keeps the program from
    ending.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, daemon: bool = True) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.over = False
        self.running = threading.Lock()
        self.running.acquire()
        self.thread = threading.Thread(target=self.run, args=(function, *arguments), daemon=daemon)
        self.thread.start()

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            self.value = function(*arguments)
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self.running.release()

    @property
    def is_ready(self) -> bool:
        """Whether `result` would neither wait nor raise."""
        return self.over and self.error is None

    def wait(self) -> None:
        """Wait for the end of the call; again, if Ctrl-C has ended the waiting."""
        # Before Python 3.13, a join that Ctrl-C ends takes the thread for one that has ended; Event.wait may raise.
        while not self.over:
            with self.running:
                pass

    def result(self) -> Any:
        """What the function returned, waited for; what it raised is raised here."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.value


class ClosableLock:
    """Held around each piece of C++ code that a thread of `Background` runs; once closed, no such piece begins.

    Python ends a daemon thread wherever it is, and inside C++ code that aborts the whole program. So whoever started
    the thread closes the lock before Python can end; closing waits for the piece that runs, and for nothing else.
    """

    def __init__(self) -> None:
        self.lock, self.closed = threading.Lock(), False
        _locks.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.closed:
            self.lock.release()
            raise LockClosed

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.lock.release()

    def close(self) -> None:
        self.closed = True  # first, or a quick thread could enter many times more before this one gets the lock
        with self.lock:
            pass


class LockClosed(Exception):
    """Raised in a thread whose lock was closed, which ends it."""


_locks: weakref.WeakSet[ClosableLock] = weakref.WeakSet()


@atexit.register
def close_locks() -> None:
    """Close the locks of streams that were left before their end, and not closed."""
    for lock in list(_locks):
        lock.close()


HostWork = Iterator[object]
"""Short pieces of work, one at each `next`, that the calling thread does while it waits for the device.

A thread would not do for them: while it makes text, it holds Python's global lock, and the next step is launched late.
"""
NO_WORK: HostWork = iter(())


def finish(work: HostWork) -> None:
    """Do the pieces that are left."""
    for _ in work:
        pass


def work_until(is_ready: Callable[[], bool], work: HostWork) -> None:
    """Do pieces of work, one at a time, until something is ready or no piece is left."""
    while not is_ready() and next(work, NO_WORK) is not NO_WORK:
        pass
