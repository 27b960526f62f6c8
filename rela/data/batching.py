"""Prepared pairs to batches: packed without padding, by token count, in an order that a seed and an epoch decide."""

from __future__ import annotations

import dataclasses
import math
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.data.plan import Numbers, plan_by_length, plan_mixed
from rela.data.shards import PreparedCorpus, Shard
from rela.data.subwords import BOS, EOS, PAD
from rela.packing import Packing

__all__ = ["Batch", "BatchStream", "PreparedCorpus", "StaticShape", "one_pass", "pack", "static_shape"]


IdSequence = Sequence[int] | NDArray[Any]


@dataclass(frozen=True)
class StaticShape:
    """The constant sizes of a batch: M source tokens, N target tokens and B sentences, filler included."""

    source: int
    target: int
    sentences: int
    longest_source: int = 0
    """If above 0, the packing of every batch says this `max_seqlen`, so that not even an integer changes between batches."""
    longest_target: int = 0


@dataclass(frozen=True)
class Batch:
    """Sentence pairs packed one after another: M source tokens, N target tokens, B sentences, no padding.

    With a static shape each tensor ends in filler: PAD ids at position 0 that belong to no sentence, and
    sentences of length zero.
    """

    source: Tensor
    """int64 [M]: pieces and EOS of each sentence."""
    target_in: Tensor
    """int64 [N]: BOS and pieces."""
    target_out: Tensor
    """int64 [N]: pieces and EOS."""
    source_positions: Tensor
    target_positions: Tensor
    source_packing: Packing
    """Where the sentences of `source` begin and end, EOS included."""
    target_packing: Packing
    """The same for `target_in` and `target_out`, BOS or EOS included."""
    sentences: int
    """Without filler."""
    target_tokens: int
    """Without filler, EOS included."""

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        return self._map(lambda tensor: tensor.pin_memory())

    def tensors(self) -> list[Tensor]:
        """All of them, in one order."""
        tensors = [value for value in vars(self).values() if isinstance(value, Tensor)]
        return [*tensors, self.source_packing.cu_seqlens, self.target_packing.cu_seqlens]

    @property
    def shape(self) -> tuple[int, ...]:
        """Every size a compiled step depends on."""
        longest = self.source_packing.max_seqlen, self.target_packing.max_seqlen
        return (*(tensor.numel() for tensor in self.tensors()), *longest)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Packing, Tensor, Tensor, Packing]:
        """What Transformer.forward takes, in its order."""
        sources = self.source, self.source_positions, self.source_packing
        return *sources, self.target_in, self.target_positions, self.target_packing

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif isinstance(value, Packing):
                changed[name] = value.map(change)
        return dataclasses.replace(self, **changed)


def pack(pairs: Sequence[tuple[IdSequence, IdSequence]], static: StaticShape | None = None) -> Batch:
    """One batch of pairs of ids without BOS and EOS, lists or arrays; with `static`, of exactly these sizes."""
    if not pairs:
        raise ValueError("no pairs to pack")
    sources, targets = zip(*pairs, strict=True)
    shape = static or StaticShape(0, 0, 0)
    source = pack_side(sources, shape.source, shape.sentences)
    target = pack_side(targets, shape.target, shape.sentences)
    return Batch(
        source=torch.from_numpy(source.with_end),
        target_in=torch.from_numpy(target.with_start),
        target_out=torch.from_numpy(target.with_end),
        source_positions=torch.from_numpy(source.positions),
        target_positions=torch.from_numpy(target.positions),
        source_packing=Packing(torch.from_numpy(source.cu_seqlens), max(source.longest, shape.longest_source)),
        target_packing=Packing(torch.from_numpy(target.cu_seqlens), max(target.longest, shape.longest_target)),
        sentences=len(pairs),
        target_tokens=target.tokens,
    )


@dataclass(frozen=True)
class PackedSide:
    with_start: NDArray[np.int64]
    with_end: NDArray[np.int64]
    positions: NDArray[np.int64]
    cu_seqlens: NDArray[np.int32]
    longest: int
    tokens: int


def pack_side(sentences: Sequence[Any], size: int, count: int) -> PackedSide:
    """Sentences end to end with room for one more id in each; `size` and `count` are 0 or the static sizes."""
    lengths = np.fromiter((len(sentence) + 1 for sentence in sentences), np.int64, count=len(sentences))
    ends = np.cumsum(lengths)
    tokens = int(ends[-1])
    size, count = size or tokens, count or len(sentences)
    if tokens > size or len(sentences) > count:
        raise ValueError(f"{tokens} tokens in {len(sentences)} sentences; the static shape holds {size} in {count}")
    starts = ends - lengths
    pieces = np.concatenate([np.asarray(sentence, dtype=np.int64) for sentence in sentences])
    with_start, with_end, positions = (np.full(size, PAD, np.int64) for _ in range(3))
    fill_around(with_start[:tokens], starts, BOS, pieces)
    fill_around(with_end[:tokens], ends - 1, EOS, pieces)
    positions[:tokens] = np.arange(tokens) - np.repeat(starts, lengths)
    cu_seqlens = np.full(count + 1, tokens, np.int32)
    cu_seqlens[: len(sentences)] = starts
    return PackedSide(with_start, with_end, positions, cu_seqlens, int(lengths.max()), tokens)


def fill_around(out: NDArray[np.int64], places: NDArray[np.int64], mark: int, pieces: NDArray[np.int64]) -> None:
    """Put `mark` at the places and the pieces, in order, everywhere else."""
    free = np.ones(len(out), dtype=bool)
    free[places] = False
    out[places] = mark
    out[free] = pieces


def static_shape(corpus: PreparedCorpus, tokens: int, source_limit: int | None = None) -> StaticShape:
    """Sizes that batches of at most `tokens` target tokens fill well, from the means of the corpus.

    The source side gets the corpus' ratio of source to target tokens and 1 % more, so that the filling
    is stopped by the target side. The number of sentences has room for four standard deviations.
    """
    pairs = len(corpus)
    mean_source, mean_target = corpus.source_tokens / pairs + 1, corpus.target_tokens / pairs + 1
    source = source_limit or max(math.ceil(1.01 * tokens * mean_source / mean_target), corpus.longest_source + 1)
    sentences = tokens / mean_target
    return StaticShape(
        source=source,
        target=tokens,
        sentences=math.ceil(sentences + 4 * math.sqrt(sentences) + 4),
        longest_source=min(corpus.longest_source + 1, source),
        longest_target=min(corpus.longest_target + 1, tokens),
    )


def default_source_limit(corpus: PreparedCorpus, tokens: int) -> int:
    """Source tokens a batch of varying size may hold: a quarter more than its share by the corpus' mean ratio."""
    pairs = len(corpus)
    ratio = (corpus.source_tokens + pairs) / (corpus.target_tokens + pairs)
    return max(math.ceil(1.25 * tokens * ratio), corpus.longest_source + 1)


def one_pass(
    corpus: PreparedCorpus,
    tokens: int,
    *,
    rank: int = 0,
    world: int = 1,
    static: bool = False,
    source_limit: int | None = None,
) -> Iterator[Batch]:
    """Every pair once, none dropped, without shuffling, for validation; a budget below the longest pair is raised to it."""
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


class Planner:
    """Which pairs make which batch: a function of the corpus, the budget, the seed, the epoch and the shard alone."""

    def __init__(
        self, corpus: PreparedCorpus, tokens: int, seed: int | None, static: bool, source_limit: int | None
    ) -> None:
        if tokens < 1:
            raise ValueError(f"tokens is {tokens}; wanted at least 1")
        self.corpus, self.tokens = corpus, tokens
        self.seed = None if seed is None else seed % (1 << 63)
        full = static_shape(corpus, tokens, source_limit)
        self.shape = full if static else None
        # Training's batches hold the same pairs whether or not filler makes them of one size: on a CPU as on a GPU.
        self.full = full if static or seed is not None else None
        self.source_limit = self.full.source if self.full else source_limit or default_source_limit(corpus, tokens)
        self.too_long: dict[int, int] = {}

    @property
    def dropped(self) -> int:
        """Pairs that alone are over the budget, in the shards planned so far."""
        return sum(list(self.too_long.values()))  # a copy: the background thread may be adding to it

    def shard_order(self, epoch: int) -> list[int]:
        shards = len(self.corpus.shard_sizes)
        assert self.seed is not None
        return np.random.default_rng([self.seed, epoch]).permutation(shards).tolist()

    def plan(self, shard: Shard, number: int, epoch: int) -> Iterator[Numbers]:
        """The batches of one shard in one epoch, each as the numbers of its pairs."""
        sizes = shard.lengths()  # [n, 2]
        sizes += 1
        limits = np.array([self.source_limit, self.tokens])
        fits = (sizes <= limits).all(axis=1)
        self.too_long[number] = int(len(sizes) - fits.sum())
        members = np.flatnonzero(fits).astype(np.int32)
        if self.seed is not None:
            generator = np.random.default_rng([self.seed, epoch, 1 + number])
            members = generator.permutation(np.repeat(members, self._repeats(shard, number, epoch)[members]))
        if self.full is None:
            return plan_by_length(members, sizes, limits)
        return plan_mixed(members, sizes, np.array([self.full.source, self.full.target, self.full.sentences]))

    def _repeats(self, shard: Shard, number: int, epoch: int) -> NDArray[np.int64]:
        """How often each pair is seen in this epoch.

        A pair of weight w comes floor((e + 1) w + u) − floor(e w + u) times in epoch e, with u drawn once for each
        pair: w times on average over the epochs and never more than one away from it; all pairs get their turn.
        """
        weights = np.array(self.corpus.weights)[shard.corpus]
        if (weights == 1).all():
            return np.ones(len(shard), np.int64)
        phase = np.random.default_rng([self.seed or 0, 0, 1 + number, 1]).random(len(shard))
        return (np.floor((epoch + 1) * weights + phase) - np.floor(epoch * weights + phase)).astype(np.int64)


class BatchStream:
    """An endless stream of batches, the same for the same seed, that can go on from any position.

    Batches are numbered; of each `world` consecutive ones, rank r gets the r-th, so all processes together see
    what one process alone would. `position` says where the next round starts, is the same on every rank
    after equally many batches, and is what `start` takes, also with another `world`. A batch is made in a
    background thread, at most `prefetch` ahead (0: no thread); what goes wrong there is raised here.
    """

    def __init__(
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
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank}; wanted one of {world}, counting from 0")
        self.planner = Planner(corpus, tokens, seed, static, source_limit)
        self.shape = self.planner.shape
        self.position = check_position(start or {}, len(corpus.shard_sizes))
        self._batches = produce(self.planner, rank, world, dict(self.position), pin)
        self._queue: queue.Queue[Any] | None = None
        if prefetch > 0:
            self._queue = queue.Queue(prefetch)
            stop = threading.Event()
            # The thread knows the queue and not the stream, or a forgotten stream would live for ever.
            self._thread = threading.Thread(
                target=feed, args=(self._batches, self._queue, stop), name="batches", daemon=True
            )
            self._stop = weakref.finalize(self, end_thread, self._thread, self._queue, stop)
            self._thread.start()

    @property
    def dropped(self) -> int:
        """Pairs left out because they alone are over the budget, in the shards visited so far."""
        return self.planner.dropped

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
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
    position = {"epoch": 0, "shard": 0, "batch": 0} | start
    if len(position) != 3 or any(not isinstance(value, int) or value < 0 for value in position.values()):
        raise ValueError(f"start is {start}; wanted epoch, shard and batch, each a whole number")
    if position["shard"] >= shards:
        raise ValueError(
            f"start is at shard {position['shard']}; the corpus has {shards}: it is not the one left off in"
        )
    return position


def produce(
    planner: Planner, rank: int, world: int, position: dict[str, int], pin: bool
) -> Generator[tuple[Batch, dict[str, int]], None, None]:
    """This rank's batch of each round, and the position after the round."""
    mine: tuple[Shard, Numbers] | None = None
    for number, (shard, members, after) in enumerate(walk(planner, position)):
        if number % world == rank:
            mine = shard, members
        if number % world == world - 1 and mine:
            shard, members = mine
            batch = pack([shard.pair(member) for member in members.tolist()], planner.shape)
            yield batch.pin_memory() if pin else batch, after


def walk(planner: Planner, position: dict[str, int]) -> Iterator[tuple[Shard, Numbers, dict[str, int]]]:
    """Planned batches from a position on, without end, each with the position after it."""
    epoch, first_shard, first_batch = position["epoch"], position["shard"], position["batch"]
    barren = 0
    patience = 2 + math.ceil(1 / min(planner.corpus.weights))  # epochs until a pair of the smallest weight must come
    while True:
        order = planner.shard_order(epoch)
        barren += 1
        for place in range(first_shard, len(order)):
            shard = planner.corpus.shard(order[place])
            plan = planner.plan(shard, order[place], epoch)
            for batch, (members, last) in enumerate(with_last(plan)):
                barren = 0
                if batch < first_batch:
                    continue
                if not last:
                    after = {"epoch": epoch, "shard": place, "batch": batch + 1}
                elif place + 1 < len(order):
                    after = {"epoch": epoch, "shard": place + 1, "batch": 0}
                else:
                    after = {"epoch": epoch + 1, "shard": 0, "batch": 0}
                yield shard, members, after
            first_batch = 0
        first_shard, epoch = 0, epoch + 1
        if barren > patience:
            raise ValueError(
                f"no pair fits a batch of {planner.tokens} target and {planner.source_limit} source tokens"
            )


def with_last(items: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    """Each item with whether it is the last one."""
    for current in items:
        for following in items:
            yield current, False
            current = following
        yield current, True


def feed(batches: Iterator[Any], out: queue.Queue[Any], stop: threading.Event) -> None:
    """Put items, and in the end the exception, into the queue until told to stop."""
    try:
        for item in batches:
            if not offer(item, out, stop):
                return
    except BaseException as error:  # the consumer raises it
        offer(error, out, stop)


def offer(item: Any, out: queue.Queue[Any], stop: threading.Event) -> bool:
    """Wait for room in the queue; False if told to stop first."""
    while not stop.is_set():
        try:
            out.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False


def end_thread(thread: threading.Thread, out: queue.Queue[Any], stop: threading.Event) -> None:
    stop.set()
    while not out.empty():
        out.get_nowait()
    if thread is not threading.current_thread():
        thread.join(timeout=5)
