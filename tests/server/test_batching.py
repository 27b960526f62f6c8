"""Requests share batches, each gets its own results, and none waits for what will not come."""

import asyncio
import contextlib
import threading
import time

import pytest

from rela.server.batching import Batcher, Task
from rela.web.refused import Busy
from tests.server.conftest import until

DOUBLE = Task("double")


class Doubler:
    """Doubles numbers, keeps what came together, can be held up, and cannot double a text."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()
        self.go.set()

    def __call__(self, task, items):
        self.batches.append((task, list(items)))
        assert self.go.wait(10)
        return [item + item if not isinstance(item, str) else int(item) for item in items]


@contextlib.asynccontextmanager
async def working(compute, **options):
    batcher = Batcher(compute, **options)
    batcher.start()
    try:
        yield batcher
    finally:
        await asyncio.to_thread(batcher.close)


async def hold(doubler, batcher):
    """A request that keeps the worker busy until `go`."""
    doubler.go.clear()
    first = asyncio.create_task(batcher.submit(DOUBLE, [0]))
    await asyncio.to_thread(until, lambda: doubler.batches)
    return first


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


def test_what_waits_together_is_computed_together_and_given_apart():
    async def test():
        doubler = Doubler()
        async with working(doubler, batch=8) as batcher:
            first = await hold(doubler, batcher)
            waiting = [asyncio.create_task(batcher.submit(DOUBLE, [i, 10 * i])) for i in range(1, 6)]
            await asyncio.to_thread(until, lambda: batcher.sentences == 10)
            doubler.go.set()
            assert await first == [0]
            assert await asyncio.gather(*waiting) == [[2 * i, 20 * i] for i in range(1, 6)]
        assert [len(items) for _, items in doubler.batches] == [1, 8, 2]

    run(test)


def test_different_tasks_do_not_mix_and_the_oldest_comes_first():
    async def test():
        doubler, other, alone = Doubler(), Task("double", (("beam", 2),)), Task("double", alone=True)
        async with working(doubler) as batcher:
            await hold(doubler, batcher)
            asked = [(DOUBLE, 1), (other, 2), (DOUBLE, 3), (alone, 4), (alone, 5), (other, 6)]
            waiting = []
            for task, item in asked:
                waiting.append(asyncio.create_task(batcher.submit(task, [item])))
                await asyncio.sleep(0)
            doubler.go.set()
            assert await asyncio.gather(*waiting) == [[2 * item] for _, item in asked]
        assert doubler.batches[1:] == [(DOUBLE, [1, 3]), (other, [2, 6]), (alone, [4]), (alone, [5])]

    run(test)


def test_a_long_request_is_cut_and_put_together_again():
    async def test():
        doubler = Doubler()
        async with working(doubler, batch=7) as batcher:
            assert await batcher.submit(DOUBLE, list(range(45))) == [2 * i for i in range(45)]
            assert await batcher.submit(DOUBLE, []) == []
        assert [len(items) for _, items in doubler.batches] == [7] * 6 + [3]

    run(test)


def test_one_that_fails_does_not_fail_the_others(caplog):
    async def test():
        doubler = Doubler()
        async with working(doubler) as batcher:
            first = await hold(doubler, batcher)
            waiting = [asyncio.create_task(batcher.submit(DOUBLE, [item])) for item in (1, "x", None, 4)]
            await asyncio.to_thread(until, lambda: batcher.sentences == 4)
            doubler.go.set()
            await first
            return await asyncio.gather(*waiting, return_exceptions=True)

    one, text, none, four = asyncio.run(test())
    assert (one, four) == ([2], [8])
    assert isinstance(text, ValueError)
    assert isinstance(none, TypeError)
    assert "a batch failed" in caplog.text  # the TypeError is nobody's refusal


def test_who_no_longer_waits_takes_no_place():
    async def test():
        doubler = Doubler()
        async with working(doubler, queue=6, batch=2) as batcher:
            first = await hold(doubler, batcher)
            gone = asyncio.create_task(batcher.submit(DOUBLE, [1, 2, 3, 4, 5]))
            await asyncio.to_thread(until, lambda: batcher.sentences == 5)
            with pytest.raises(Busy, match="5 sentences wait"):
                await batcher.submit(DOUBLE, [6, 7])
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert batcher.sentences == 0
            last = asyncio.create_task(batcher.submit(DOUBLE, [6, 7, 8, 9, 10, 11]))
            await asyncio.sleep(0)
            doubler.go.set()
            assert await first == [0]
            assert await last == [12, 14, 16, 18, 20, 22]
        assert sum(len(items) for _, items in doubler.batches) == 7

    run(test)


def test_a_single_client_is_not_kept_waiting():
    async def test():
        async with working(Doubler(), latency=5.0) as batcher:
            start = time.monotonic()
            for i in range(20):
                assert await batcher.submit(DOUBLE, [i]) == [2 * i]
            assert time.monotonic() - start < 4

    run(test)


def test_clients_that_ask_again_and_again_share_their_batches():
    """Each asks again 2 ms after its answer; without the wait of 200 ms batches of one and of three would alternate."""

    async def test():
        doubler = Doubler()
        async with working(doubler, latency=0.2) as batcher:

            async def client():
                for i in range(10):
                    assert await batcher.submit(DOUBLE, [i]) == [2 * i]
                    await asyncio.sleep(0.002)

            await asyncio.gather(*(client() for _ in range(4)))
        sizes = [len(items) for _, items in doubler.batches]
        assert sum(sizes) == 40
        assert sorted(sizes)[len(sizes) // 2] == 4

    run(test)


def test_batches_are_shared_also_where_one_takes_longer_than_the_target():
    """Without patience two halves of the clients would take turns."""

    async def test():
        doubler = Doubler()

        def slowly(task, items):
            time.sleep(0.1)
            return doubler(task, items)

        async with working(slowly, latency=0.0) as batcher:

            async def client():
                for i in range(6):
                    assert await batcher.submit(DOUBLE, [i]) == [2 * i]

            await asyncio.gather(*(client() for _ in range(6)))
        sizes = [len(items) for _, items in doubler.batches]
        assert sum(sizes) == 36
        assert sorted(sizes)[len(sizes) // 2] == 6

    run(test)


def test_a_client_that_left_is_waited_for_once_and_no_longer_than_the_latency():
    async def test():
        async with working(Doubler(), latency=0.3) as batcher:
            batcher.expected = 2
            times = []
            for _ in range(2):
                start = time.monotonic()
                await batcher.submit(DOUBLE, [1])
                times.append(time.monotonic() - start)
            assert 0.2 < times[0] < 2
            assert times[1] < 0.2

    run(test)


def test_a_close_finishes_its_batch_and_refuses_what_waits():
    async def test():
        doubler = Doubler()
        batcher = Batcher(doubler)
        with pytest.raises(Busy):
            await batcher.submit(DOUBLE, [1])
        batcher.start()
        first = await hold(doubler, batcher)
        second = asyncio.create_task(batcher.submit(DOUBLE, [1]))
        await asyncio.to_thread(until, lambda: batcher.sentences == 1)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.to_thread(until, lambda: batcher.closing)
        doubler.go.set()
        await closing
        assert await first == [0]
        with pytest.raises(Busy, match="stopping"):
            await second
        assert not batcher.is_working
        batcher.start()
        assert await batcher.submit(DOUBLE, [2]) == [4]
        await asyncio.to_thread(batcher.close)

    run(test)
