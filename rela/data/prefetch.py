"""Items made in a background thread and handed over in a queue of limited length."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

WAIT = 0.1
"""Seconds between two checks whether to stop."""


def fill_queue(items: Iterator[Any], out: queue.Queue[Any], stop: threading.Event) -> None:
    """Put the items, and in the end the exception, into the queue until told to stop."""
    try:
        for item in items:
            if not put_unless_stopped(item, out, stop):
                return
    except BaseException as error:  # the consumer raises it
        put_unless_stopped(error, out, stop)


def put_unless_stopped(item: Any, out: queue.Queue[Any], stop: threading.Event) -> bool:
    """Wait for room in the queue and put the item there; False if told to stop first."""
    while not stop.is_set():
        try:
            out.put(item, timeout=WAIT)
            return True
        except queue.Full:
            continue
    return False


def end_thread(thread: threading.Thread, out: queue.Queue[Any], stop: threading.Event) -> None:
    """Tell a thread of `fill_queue` to stop, and wait for its end."""
    stop.set()
    while not out.empty():
        out.get_nowait()
    if thread is not threading.current_thread():
        thread.join(timeout=5)
