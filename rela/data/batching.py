"""Prepared pairs to batches, by token count, in an order that a seed and an epoch decide."""

from __future__ import annotations

import math
import queue
import threading
import weakref
from collections.abc import Generator, Iterator
from typing import Any

from rela.data.batch import Batch, StaticShape, pack
from rela.data.plan import Numbers, Planner, static_shape
from rela.data.prefetch import end_thread, fill_queue
from rela.data.sampling import SubwordSampling
from rela.data.shards import PreparedCorpus, Shard

__all__ = ["Batch", "BatchStream", "PreparedCorpus", "StaticShape", "one_pass", "pack", "static_shape"]


def one_pass(
    corpus: PreparedCorpus,
    tokens: int,
    *,
    rank: int = 0,
    world: int = 1,
    static: bool = False,
    source_limit: int | None = None,
) -> Iterator[Batch]:
    """Every pair once, none dropped, not shuffled, for validation; a budget below the longest pair is raised to it."""
    tokens = max(tokens, corpus.longest_target + 1)
    if source_limit is not None:
        source_limit = max(source_limit, corpus.longest_source + 1)
    planner = Planner(corpus, tokens, None, static, source_limit)
    number = 0
    for shard in range(len(corpus.shard_sizes)):
        mapped = corpus.shard(shard)
        for members in planner.plan(mapped, shard, epoch=0):
            if number % world == rank:
                yield pack([mapped.pair(member) for member in members.tolist()], planner.shape)
            number += 1


class BatchStream:
    """An endless stream of batches, the same for the same seed, that can go on from any position.

    Batches are numbered; of each `world` consecutive ones, rank r gets the r-th, so all processes together see
    what one process alone would. `position` says where the next round starts, is the same on every rank
    after equally many batches, and is what `start` takes, also with another `world`. A batch is made in a
    background thread, at most `prefetch` ahead (0: no thread); what goes wrong there is raised here.
    """

    def __init__(  # noqa: PLR0913 (keyword options with defaults)
        self,
        corpus: PreparedCorpus,
        tokens: int,
        seed: int,
        *,
        rank: int = 0,
        world: int = 1,
        static: bool = False,
        start: dict[str, int] | None = None,
        prefetch: int = 4,
        source_limit: int | None = None,
        pin: bool = False,
        sampling: SubwordSampling | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank}; wanted one of {world}, counting from 0")
        self.planner = Planner(corpus, tokens, seed, static, source_limit, sampling)
        self.shape = self.planner.shape
        self.position = check_position(start or {}, len(corpus.shard_sizes))
        self._batches = produce(self.planner, rank, world, dict(self.position), pin)
        self._queue: queue.Queue[Any] | None = None
        if prefetch > 0:
            self._queue = queue.Queue(prefetch)
            stop = threading.Event()
            # The thread knows the queue and not the stream, or a stream without references would live for ever.
            arguments = (self._batches, self._queue, stop)
            self._thread = threading.Thread(target=fill_queue, args=arguments, name="batches", daemon=True)
            self._stop = weakref.finalize(self, end_thread, self._thread, self._queue, stop)
            self._thread.start()

    @property
    def dropped(self) -> int:
        """Pairs left out because they alone are over the budget, in the shards visited so far."""
        return self.planner.dropped

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch: Batch
        if self._queue is None:
            batch, self.position = next(self._batches)
            return batch
        if not self._stop.alive:
            raise StopIteration
        item = self._queue.get()
        if isinstance(item, BaseException):
            self.close()
            raise item
        batch, self.position = item
        return batch

    def close(self) -> None:
        """End the background thread; the stream is then over."""
        if self._queue is None:
            self._batches.close()
        else:
            self._stop()

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_position(start: dict[str, int], shards: int) -> dict[str, int]:
    """The position to start from, complete; a ValueError if it is none in this corpus."""
    position = {"epoch": 0, "shard": 0, "batch": 0} | start
    if len(position) != 3 or any(not isinstance(value, int) or value < 0 for value in position.values()):
        raise ValueError(f"start is {start}; wanted epoch, shard and batch, each a whole number")
    if position["shard"] >= shards:
        there = f"the corpus has {shards}: it is not the one left off in"
        raise ValueError(f"start is at shard {position['shard']}; {there}")
    return position


def produce(
    planner: Planner, rank: int, world: int, position: dict[str, int], pin: bool
) -> Generator[tuple[Batch, dict[str, int]], None, None]:
    """This rank's batch of each round, and the position after the round."""
    mine: tuple[Shard, Numbers] | None = None
    for number, (shard, members, after) in enumerate(planned_batches(planner, position)):
        if number % world == rank:
            mine = shard, members
        if number % world == world - 1 and mine:
            shard, members = mine
            batch = pack([shard.pair(member) for member in members.tolist()], planner.shape)
            yield batch.pin_memory() if pin else batch, after


def planned_batches(planner: Planner, position: dict[str, int]) -> Iterator[tuple[Shard, Numbers, dict[str, int]]]:
    """Planned batches from a position on, without end, each with the position after it."""
    epoch, first_shard, first_batch = position["epoch"], position["shard"], position["batch"]
    empty_epochs = 0  # in a row
    most_empty = 2 + math.ceil(1 / min(planner.corpus.weights))  # a pair of the smallest weight must come by then
    while True:
        order = planner.shard_order(epoch)
        empty_epochs += 1
        for index in range(first_shard, len(order)):
            shard = planner.shard(order[index], epoch)
            plan = planner.plan(shard, order[index], epoch)
            for batch, (members, last) in enumerate(with_last(plan)):
                empty_epochs = 0
                if batch < first_batch:
                    continue
                if not last:
                    after = {"epoch": epoch, "shard": index, "batch": batch + 1}
                elif index + 1 < len(order):
                    after = {"epoch": epoch, "shard": index + 1, "batch": 0}
                else:
                    after = {"epoch": epoch + 1, "shard": 0, "batch": 0}
                yield shard, members, after
            first_batch = 0
        first_shard, epoch = 0, epoch + 1
        if empty_epochs > most_empty:
            limits = f"{planner.tokens} target and {planner.source_limit} source tokens"
            raise ValueError(f"no pair fits a batch of {limits}")


def with_last(items: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    """Each item with whether it is the last one."""
    for current in items:
        for following in items:
            yield current, False
            current = following
        yield current, True
