"""Work in the background: its result or its error, and a program that ends although a thread still waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rela.decoding.background import NO_WORK, Background, ClosableLock, LockClosed, close_locks, finish, work_until


def test_a_result_is_waited_for_and_an_error_is_raised():
    allowed = threading.Event()
    call = Background(lambda number: allowed.wait(60) and number + 1, 2)
    assert not call.is_ready
    allowed.set()
    assert call.result() == 3
    call.thread.join()
    assert call.is_ready
    broken = Background(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.result()
    assert not broken.is_ready


def test_a_call_is_waited_for_again_after_the_waiting_was_interrupted():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    allowed = threading.Event()
    call = Background(lambda: allowed.wait(60))
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            call.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not call.is_ready
    threading.Timer(0.1, allowed.set).start()
    assert call.result()


def test_a_closed_lock_waits_for_the_piece_that_runs_and_lets_no_other_begin():
    lock, inside, leave, done = ClosableLock(), threading.Event(), threading.Event(), []

    def pieces() -> None:
        for number in range(3):
            with lock:
                inside.set()
                leave.wait(60)
                done.append(number)

    call = Background(pieces)
    inside.wait(60)
    closing = threading.Thread(target=lock.close)
    closing.start()
    assert closing.is_alive()
    while not lock.closed:
        time.sleep(0.001)
    leave.set()
    with pytest.raises(LockClosed):
        call.result()
    closing.join(60)
    assert done == [0]


def test_locks_that_nobody_closed_are_closed_when_python_ends():
    lock = ClosableLock()
    close_locks()
    with pytest.raises(LockClosed), lock:
        pass


def test_pieces_of_work_are_done_until_something_is_ready():
    done: list[int] = []
    work = (done.append(number) for number in range(5))
    work_until(lambda: len(done) == 2, work)
    assert done == [0, 1]
    work_until(lambda: False, iter(()))
    work_until(lambda: False, NO_WORK)
    finish(work)
    assert done == [0, 1, 2, 3, 4]


def test_a_thread_that_waits_for_input_does_not_spoil_the_end():
    """Python's own stdin, held by a thread at exit, would be a fatal error."""
    program = (
        "import time\nfrom rela.data.corpus import open_text\nfrom rela.decoding.background import Background\n"
        "Background(lambda: open_text('-').readline())\ntime.sleep(0.3)\nprint('over')\n"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        waiting.wait(timeout=60)  # its input stays open, and nothing comes
        assert waiting.returncode == 0
        assert waiting.stdout.read() == "over\n"
        assert not waiting.stderr.read()
    finally:
        waiting.kill()
        for stream in (waiting.stdin, waiting.stdout, waiting.stderr):
            stream.close()
