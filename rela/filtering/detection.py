"""How well a score tells clean sentence pairs from noisy ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rela.filtering.pair_scores import PairScore


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1 of the smallest; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    _, group, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((2 * last - counts + 1) / 2)[group.reshape(array.shape)]


def auroc(clean: ArrayLike, noisy: ArrayLike) -> float:
    """The probability that a noisy pair scores above a clean one, ties counting half: ½ is chance, 1 is perfect.

    AUROC = (Σ_{i noisy} rank(i) − n(n + 1)/2) / (n · m),  n noisy and m clean pairs ranked together
    """
    m, n = np.size(clean), np.size(noisy)
    if not m or not n:
        raise ValueError(f"{m} clean and {n} noisy scores; wanted at least one of each")
    together = np.concatenate([np.ravel(clean), np.ravel(noisy)]).astype(np.float64)
    if np.isnan(together).any():
        raise ValueError("a score is not a number, so the pairs cannot be ranked")
    return float((ranks(together)[m:].sum() - n * (n + 1) / 2) / (n * m))


def auroc_interval(clean: ArrayLike, noisy: ArrayLike, resamples: int = 1000, seed: int = 1) -> tuple[float, float]:
    """The 95 % confidence interval of the AUROC, by bootstrap over the clean and over the noisy pairs."""
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; wanted at least 1")
    good, bad = np.ravel(clean), np.ravel(noisy)
    random = np.random.default_rng(seed)
    found = [auroc(random.choice(good, len(good)), random.choice(bad, len(bad))) for _ in range(resamples)]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def detection(clean: Sequence[PairScore], noisy: Sequence[PairScore]) -> dict[str, float]:
    """AUROC of finding the noisy pairs by null rate, by log-probability, and by the sum of both ranks."""
    m = len(clean)
    null_rate = np.array([score.null_rate for score in [*clean, *noisy]])
    improbable = -np.array([score.log_prob for score in [*clean, *noisy]])
    badness = {"null_rate": null_rate, "log_prob": improbable, "both": ranks(null_rate) + ranks(improbable)}
    return {name: auroc(values[:m], values[m:]) for name, values in badness.items()}
