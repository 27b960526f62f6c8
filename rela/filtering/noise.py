"""Noise made on purpose: ways to make bad sentence pairs of good ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

Pair = tuple[str, str]
OMITTED = 0.4
"""Share of the target's words that an omission leaves out."""


def derangement(count: int, seed: int) -> list[int]:
    """A random order of `count` items that leaves none where it was: one cycle through all (Sattolo's algorithm)."""
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
    others = [pairs[i][1] for i in derangement(len(pairs), seed)]
    return [
        (source, f"{target} {other}" if random.random() < 0.5 else f"{other} {target}")
        for (source, target), other in zip(pairs, others, strict=True)
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


def _repeated(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    random = Random(seed)
    return [(source, _with_repetition(target.split(), random)) for source, target in pairs]


def _with_repetition(words: list[str], random: Random) -> str:
    if not words:
        return ""
    length = random.randint(1, min(4, len(words)))
    start = random.randrange(len(words) - length + 1)
    times = random.randint(2, max(2, len(words) // length))
    return " ".join(words[: start + length] + words[start : start + length] * times + words[start + length :])


def _partly_copied(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    random = Random(seed)
    return [(source, _with_stretch_of(source.split(), target.split(), random)) for source, target in pairs]


def _with_stretch_of(others: list[str], words: list[str], random: Random) -> str:
    """The words with two fifths of them replaced by the other sentence's words of about the same place."""
    if not words or not others:
        return " ".join(words)
    length = max(1, round(OMITTED * len(words)))
    start = random.randrange(len(words) - length + 1)
    scale = len(others) / len(words)
    taken = others[int(start * scale) : max(int((start + length) * scale), int(start * scale) + 1)]
    return " ".join(words[:start] + taken + words[start + length :])


def _partly_replaced(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    random = Random(seed)
    others = [pairs[i][1] for i in derangement(len(pairs), seed)]
    return [
        (source, _with_stretch_of(other.split(), target.split(), random))
        for (source, target), other in zip(pairs, others, strict=True)
    ]


Noise = Callable[[Sequence[Pair], int], list[Pair]]
NOISES: Mapping[str, Noise] = {
    "shuffled": shuffled_targets,
    "wrong-language": _copied,
    "insertion": _inserted,
    "omission": _omitted,
}
"""The kinds that the report shows."""
ALL_NOISES: Mapping[str, Noise] = {
    **NOISES,
    "repetition": _repeated,
    "partly-copied": _partly_copied,
    "partly-replaced": _partly_replaced,
}
"""The kinds that a detector is fitted on."""


def make_noise(pairs: Sequence[Pair], kind: str, seed: int) -> list[Pair]:
    """Pairs of any corpus made noisy in one way, the same for the same seed.

    - "shuffled": every source gets the target of another pair.
    - "wrong-language": the target is a copy of the source.
    - "insertion": the target of another pair stands before or after the target.
    - "omission": a stretch of two fifths of the target's words is left out.
    - "repetition": one to four words of the target are said again, two times or more.
    - "partly-copied": two fifths of the target's words are the source's words of about the same place.
    - "partly-replaced": two fifths of the target's words are those of another pair's target.
    """
    if kind not in ALL_NOISES:
        raise ValueError(f"unknown noise {kind!r}; there are {', '.join(ALL_NOISES)}")
    return ALL_NOISES[kind](pairs, seed)
