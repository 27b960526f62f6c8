"""The order of scored pairs, and which of them are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.filtering.detection import ranks

ORDERS = ("null-rate", "log-prob", "both", "score")
LOW_IS_GOOD = ("null-rate", "score")


@dataclass(frozen=True)
class Criterion:
    """What pairs are ranked by, and how many are kept.

    `by` is "null-rate" (low is good), "log-prob" (high is good), "both" (the mean of a pair's ranks in the two
    orders, as a share of the pairs, 1 the best and equal scores sharing a rank) or "score", a detector's (low is good).
    """

    by: str = "null-rate"
    keep: float | None = None
    """The share of the scored pairs to keep, of equals the earlier."""
    threshold: float | None = None
    """The worst score to keep, in the units of `by`."""

    def __post_init__(self) -> None:
        if self.by not in ORDERS:
            raise ValueError(f"by is {self.by!r}; wanted one of {', '.join(ORDERS)}")
        if self.keep is not None and self.threshold is not None:
            raise ValueError("both a share to keep and a threshold are given; wanted one of them")
        if self.keep is not None and not 0 <= self.keep <= 1:
            raise ValueError(f"keep is {self.keep}; wanted a share from 0 to 1")
        if self.threshold is not None and math.isnan(self.threshold):
            raise ValueError("the threshold is not a number")

    @property
    def keeps(self) -> bool:
        """Whether pairs are to be kept at all, or only ranked."""
        return self.keep is not None or self.threshold is not None


def rank_values(scores: NDArray[Any], by: str) -> NDArray[np.float64]:
    """[N], a number for each pair, high is good: −null rate, log-probability, the mean of both ranks, or −score.

    It is NaN for a pair with a problem.
    """
    good = scores["problem"] == 0
    if by in LOW_IS_GOOD:
        return np.where(good, -scores[by.replace("-", "_")], np.nan)
    if by == "log-prob":
        return np.where(good, scores["log_prob"], np.nan)
    values = np.full(len(scores), np.nan)
    count = max(int(good.sum()), 1)
    values[good] = (ranks(-scores["null_rate"][good]) + ranks(scores["log_prob"][good])) / (2 * count)
    return values


def best_first(goodness: NDArray[np.float64]) -> NDArray[np.int64]:
    """The lines that have a score, the best first and equals in the order of the corpus."""
    order = np.argsort(-goodness, kind="stable")
    return order[: int((~np.isnan(goodness)).sum())]  # NaN sorts last


def chosen(goodness: NDArray[np.float64], order: NDArray[np.int64], criterion: Criterion) -> NDArray[np.bool_] | None:
    """True for each line to keep; None where the pairs are only ranked."""
    kept = np.zeros(len(goodness), bool)
    if criterion.keep is not None:
        kept[order[: math.floor(criterion.keep * len(order) + 0.5)]] = True
    elif criterion.threshold is not None:
        worst = -criterion.threshold if criterion.by in LOW_IS_GOOD else criterion.threshold
        kept[order] = goodness[order] >= worst
    else:
        return None
    return kept
