"""Which sentences share a batch: mixed lengths to learn from, similar ones to validate with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer[Any]]

LOOK_AHEAD = 256
"""Sentences from which the last gap of a batch is filled."""
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
