"""Which sentences share a batch: mixed lengths to learn from, similar ones to validate with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.batch import StaticShape
from rela.data.sampling import SubwordSampling
from rela.data.shards import PreparedCorpus, Shard

Numbers = NDArray[np.integer[Any]]

LOOK_AHEAD = 256
"""Sentences among which those that fill the rest of a batch are chosen."""
GAP, NARROW, FEW = 24, 2, 16
"""Mean sentences that the gap is wide; when it counts as narrow; how many are tried while it is not."""


def plan_by_length(members: Numbers, sizes: Numbers, limits: Numbers) -> Iterator[Numbers]:
    """Batches of sentences of similar length, shortest first; the order of `members` decides between equals.

    `members` are pair numbers; `sizes` [n, 2] and `limits` [2] count source and target tokens. For validation alone,
    where a batch teaches nothing and less padding is less work.
    """
    order = members[np.argsort(sizes[members].sum(1), kind="stable")]
    source, target = (np.concatenate([[0], np.cumsum(sizes[order, side])]) for side in (0, 1))  # each [m + 1]
    start = 0
    while start < len(order):
        sides = zip((source, target), limits, strict=True)
        end = int(min(np.searchsorted(total, total[start] + limit, side="right") for total, limit in sides)) - 1
        yield order[start:end]
        start = end


def plan_mixed(members: Numbers, sizes: Numbers, limits: Numbers) -> Iterator[Numbers]:
    """Batches that fill `limits` [3] (source tokens, target tokens, sentences) as well as they can.

    Lengths are mixed as in the corpus: a model whose every step sees one length alone translates a little worse, and
    ReLA's heads then align much worse (docs/log.md).
    """
    members = members.copy()
    weight = np.concatenate([sizes, np.ones((len(sizes), 1), np.int64)], axis=1)  # [n, 3]
    start = 0
    while start < len(members):
        window = members[start : start + int(limits[2]) + LOOK_AHEAD]
        chosen = fill(weight[window], limits)
        batch, rest = window[chosen], window[~chosen]
        members[start : start + len(window)] = np.concatenate([batch, rest])
        start += len(batch)
        yield batch


def fill(weight: Numbers, limits: Numbers) -> NDArray[np.bool_]:
    """Choose rows of `weight` [w, 3] whose sum stays within `limits`: the first ones, then what suits the gap best.

    The first rows leave a gap of some sentences. While the gap is wide, the next sentence is the one of a few
    that best keeps source and target in step; at the end it is the largest that fits.
    """
    mean = weight.mean(0)
    filled = np.cumsum(weight, axis=0)
    first = int((filled <= limits - GAP * mean).all(axis=1).sum())
    chosen = np.zeros(len(weight), bool)
    chosen[:first] = True
    gap = limits - filled[first - 1] if first else limits.copy()
    left = np.arange(first, min(len(weight), first + LOOK_AHEAD))
    while True:
        left = left[(weight[left] <= gap).all(axis=1)]
        if len(left) == 0:
            return chosen
        if (gap > NARROW * mean).all():
            after = (gap - weight[left[:FEW]]) / mean
            best = int(np.abs(after[:, 0] - after[:, 1]).argmin())
        else:
            best = int(weight[left].sum(1).argmax())
        chosen[left[best]] = True
        gap = gap - weight[left[best]]
        left = np.delete(left, best)


def static_shape(corpus: PreparedCorpus, tokens: int, source_limit: int | None = None, longest: int = 0) -> StaticShape:
    """Sizes that batches of at most `tokens` target tokens fill well, from the means of the corpus.

    The source side gets the corpus' ratio of source to target tokens and 1 % more, so that the filling
    is stopped by the target side. The number of sentences has room for four standard deviations. A sentence has at most
    the subwords of the corpus' longest, or `longest`.
    """
    pairs = len(corpus)
    mean_source, mean_target = corpus.source_tokens / pairs + 1, corpus.target_tokens / pairs + 1
    source = source_limit or max(math.ceil(1.01 * tokens * mean_source / mean_target), corpus.longest_source + 1)
    sentences = tokens / mean_target
    return StaticShape(
        source=source,
        target=tokens,
        sentences=math.ceil(sentences + 4 * math.sqrt(sentences) + 4),
        longest_source=min(max(corpus.longest_source, longest) + 1, source),
        longest_target=min(max(corpus.longest_target, longest) + 1, tokens),
    )


def default_source_limit(corpus: PreparedCorpus, tokens: int) -> int:
    """Source tokens a batch of varying size may hold: a quarter more than its share by the corpus' mean ratio."""
    pairs = len(corpus)
    ratio = (corpus.source_tokens + pairs) / (corpus.target_tokens + pairs)
    return max(math.ceil(1.25 * tokens * ratio), corpus.longest_source + 1)


class Planner:
    """Which pairs make which batch: a function of the corpus, the budget, the seed, the epoch and the shard alone."""

    def __init__(
        self,
        corpus: PreparedCorpus,
        tokens: int,
        seed: int | None,
        static: bool,
        source_limit: int | None,
        sampling: SubwordSampling | None = None,
    ) -> None:
        if tokens < 1:
            raise ValueError(f"tokens is {tokens}; wanted at least 1")
        self.corpus, self.tokens, self.sampling = corpus, tokens, sampling
        self.seed = None if seed is None else seed % (1 << 63)
        full = static_shape(corpus, tokens, source_limit, 0 if sampling is None else sampling.longest)
        self.shape = full if static else None
        # Training batches hold the same pairs whether or not filler makes them of one size: on a CPU as on a GPU.
        self.full = full if static or seed is not None else None
        self.source_limit = self.full.source if self.full else source_limit or default_source_limit(corpus, tokens)
        self.too_long: dict[int, int] = {}

    @property
    def dropped(self) -> int:
        """Pairs that alone are over the budget, in the shards planned so far."""
        return sum(list(self.too_long.values()))  # a copy: the background thread may be adding to it

    def shard_order(self, epoch: int) -> list[int]:
        """The shards in the order in which an epoch visits them."""
        shards = len(self.corpus.shard_sizes)
        assert self.seed is not None
        order: list[int] = np.random.default_rng([self.seed, epoch]).permutation(shards).tolist()
        return order

    def shard(self, number: int, epoch: int) -> Shard:
        """A shard as an epoch sees it: as it was prepared, or cut into other subwords."""
        prepared = self.corpus.shard(number)
        if self.sampling is None:
            return prepared
        assert self.seed is not None
        return self.sampling.sample(prepared, [self.seed, epoch, number], (self.source_limit - 1, self.tokens - 1))

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
        times = np.floor((epoch + 1) * weights + phase) - np.floor(epoch * weights + phase)
        repeats: NDArray[np.int64] = times.astype(np.int64)
        return repeats
