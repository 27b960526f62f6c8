"""Telling clean sentence pairs from noisy ones: noise made on purpose, and the AUROC of a score that should find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rela.filtering.pair_scores import PairScore

Pair = tuple[str, str]
OMITTED = 0.4
"""Share of the target's words that an omission leaves out."""


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


def detection(clean: Sequence[PairScore], noisy: Sequence[PairScore]) -> dict[str, float]:
    """AUROC of finding the noisy pairs by null rate, by log-probability, and by the sum of both ranks."""
    m = len(clean)
    null_rate = np.array([score.null_rate for score in [*clean, *noisy]])
    improbable = -np.array([score.log_prob for score in [*clean, *noisy]])
    badness = {"null_rate": null_rate, "log_prob": improbable, "both": ranks(null_rate) + ranks(improbable)}
    return {name: auroc(values[:m], values[m:]) for name, values in badness.items()}


def derangement(count: int, seed: int) -> list[int]:
    """A random order of `count` items that leaves none in its place: one cycle through all, by Sattolo's algorithm."""
    if count < 2:
        raise ValueError(f"cannot shuffle {count} pairs; at least two are wanted")
    random = Random(seed)
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = random.randrange(last)
        order[last], order[other] = order[other], order[last]
    return order


def shuffled_targets(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The paper's hallucinated test set: every source with the target of another pair."""
    order = derangement(len(pairs), seed)
    return [(source, pairs[other][1]) for (source, _), other in zip(pairs, order, strict=True)]


def _copied(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    return [(source, source) for source, _ in pairs]


def _inserted(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    random = Random(seed)
    strangers = [pairs[other][1] for other in derangement(len(pairs), seed)]
    return [
        (source, f"{target} {stranger}" if random.random() < 0.5 else f"{stranger} {target}")
        for (source, target), stranger in zip(pairs, strangers, strict=True)
    ]


def _omitted(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    random = Random(seed)
    return [(source, _without_stretch(target.split(), random)) for source, target in pairs]


def _without_stretch(words: list[str], random: Random) -> str:
    if len(words) < 2:
        return " ".join(words)
    length = max(1, round(OMITTED * len(words)))
    start = random.randrange(len(words) - length + 1)
    return " ".join(words[:start] + words[start + length :])


NOISES: Mapping[str, Callable[[Sequence[Pair], int], list[Pair]]] = {
    "shuffled": shuffled_targets,
    "wrong-language": _copied,
    "insertion": _inserted,
    "omission": _omitted,
}


def make_noise(pairs: Sequence[Pair], kind: str, seed: int) -> list[Pair]:
    """Pairs of any corpus made noisy in one way, the same for the same seed.

    - "shuffled": every source gets the target of another pair.
    - "wrong-language": the target is a copy of the source.
    - "insertion": the target of another pair stands before or after the target.
    - "omission": a stretch of two fifths of the target's words is left out.
    """
    if kind not in NOISES:
        raise ValueError(f"unknown noise {kind!r}; there are {', '.join(NOISES)}")
    return NOISES[kind](pairs, seed)
