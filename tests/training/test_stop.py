"""A signal asks a run to stop, a second one ends it, and afterwards signals mean what they meant."""

import os
import signal
import threading

import pytest

from rela.training.stop import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals):
    before = signal.getsignal(number)
    stop = StopRequest()
    with stop.from_signals():
        assert not stop.asked
        os.kill(os.getpid(), number)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_in_another_thread_signals_are_left_alone():
    handlers = []

    def run() -> None:
        with StopRequest().from_signals():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
