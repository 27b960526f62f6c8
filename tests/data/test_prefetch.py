"""A queue filled in the background: all items in order, then the error; never more than there is room for."""

import itertools
import queue
import threading

import pytest

from rela.data.prefetch import end_thread, fill_queue


def start(items, room):
    out, stop = queue.Queue(room), threading.Event()
    thread = threading.Thread(target=fill_queue, args=(items, out, stop), daemon=True)
    thread.start()
    return thread, out, stop


@pytest.mark.parametrize("room", [1, 3, 100])
def test_items_come_in_order_and_the_error_last(room):
    def items():
        yield from range(20)
        raise OSError("gone")

    thread, out, _ = start(items(), room)
    assert [out.get(timeout=10) for _ in range(20)] == list(range(20))
    error = out.get(timeout=10)
    assert isinstance(error, OSError)
    assert str(error) == "gone"
    thread.join(10)
    assert not thread.is_alive()


def test_no_more_is_made_than_there_is_room_for_and_the_thread_ends_when_told_to():
    made = []
    endless = (made.append(number) or number for number in itertools.count())
    thread, out, stop = start(endless, 3)
    assert out.get(timeout=10) == 0
    threading.Event().wait(0.3)
    assert len(made) <= 1 + 3 + 1  # taken, in the queue, and one that waits for room
    end_thread(thread, out, stop)
    assert not thread.is_alive()
