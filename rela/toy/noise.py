"""Noise made on purpose, to test detectors of it: four ways for a pair to be a bad translation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from rela.toy.corpus import ToyPair, generate
from rela.toy.words import Links, capitalise

_FUNCTION_LENGTH = 4  # words up to this length are shared by unrelated sentences: articles, pronouns, punctuation
_OMITTED_AT_LEAST, _OMITTED_AT_MOST = 2, 0.6  # target words; share of the target


def _shuffle(pairs: Sequence[ToyPair], random: Random) -> list[ToyPair]:
    """Every source with the target of another pair, and no links."""
    if len(pairs) == 1:
        raise ValueError("cannot shuffle 1 pair; at least two are wanted")
    order = list(range(len(pairs)))
    # Sattolo's algorithm: one cycle through all pairs, so none keeps its target.
    for last in range(len(order) - 1, 0, -1):
        other = int(random.random() * last)
        order[last], order[other] = order[other], order[last]
    return [replace(pair, target=pairs[other].target, links=()) for pair, other in zip(pairs, order, strict=True)]


def _copy(pair: ToyPair, random: Random) -> ToyPair:
    """The source in the place of the target: nothing has been translated, and nothing is linked."""
    return replace(pair, target=pair.source, links=())


def _long_words(sentence: str) -> set[str]:
    return {word.lower() for word in sentence.split() if len(word) > _FUNCTION_LENGTH}


def _insert(pair: ToyPair, random: Random) -> ToyPair:
    """An unrelated German sentence before or after the target; the links stay with their words."""
    present = _long_words(pair.source) | _long_words(pair.target)
    others = generate(100, seed=int(random.random() * 2**32))
    unrelated = next(
        other.target for other in others if present.isdisjoint(_long_words(other.source) | _long_words(other.target))
    )
    if random.random() < 0.5:
        return replace(pair, target=f"{pair.target} {unrelated}")
    shift = len(unrelated.split())
    links = tuple((source, target + shift) for source, target in pair.links)
    return replace(pair, target=f"{unrelated} {pair.target}", links=links)


def phrase_spans(links: Links, length: int) -> list[tuple[int, int]]:
    """The stretches [start, end) of a target of `length` words that translate a stretch of the source.

    That is: they have links, and no source word between the first and the last they are linked to is also linked to a
    word outside.
    """
    spans = []
    for start in range(length):
        for end in range(start + 1, length + 1):
            sources = [source for source, target in links if start <= target < end]
            if sources and all(
                start <= target < end for source, target in links if min(sources) <= source <= max(sources)
            ):
                spans.append((start, end))
    return spans


def _omit(pair: ToyPair, random: Random) -> ToyPair:
    """The target without one of its phrases, and without that phrase's links."""
    words = pair.target.split()
    body = len(words) - 1  # the final stop stays
    inner = tuple(link for link in pair.links if link[1] < body)
    # A word without a link belongs to the next one: der is not left behind where Arbeit goes.
    bound = {position for position in range(body) if words[position] != ","} - {target for _, target in inner}
    spans = [(start, end) for start, end in phrase_spans(inner, body) if end - start < body and end not in bound]
    long_enough = [
        (start, end) for start, end in spans if _OMITTED_AT_LEAST <= end - start <= _OMITTED_AT_MOST * len(words)
    ]
    candidates = long_enough or spans
    if not candidates:
        raise ValueError(f"cannot omit a phrase from {pair.target!r}; it has none that could be left out")
    start, end = candidates[int(random.random() * len(candidates))]
    rest = words[:start] + words[end:]
    links = tuple(
        (source, target if target < start else target - (end - start))
        for source, target in pair.links
        if not start <= target < end
    )
    return replace(pair, target=capitalise(" ".join(rest)), links=links)


_SINGLE: dict[str, Callable[[ToyPair, Random], ToyPair]] = {
    "wrong-language": _copy,
    "insertion": _insert,
    "omission": _omit,
}
NOISES = ("shuffled", *_SINGLE)


def add_noise(pairs: Sequence[ToyPair], kind: str, seed: int) -> list[ToyPair]:
    """The pairs made noisy in one way, the same for the same seed; `noise` of each pair says in which.

    - "shuffled": every source gets the target of another pair; no links.
    - "wrong-language": the target is a copy of the English source; no links, for nothing is a translation.
    - "insertion": an unrelated German sentence before or after the target; the links stay with their words.
    - "omission": a phrase of the target is left out, and its links with it.
    """
    if kind not in NOISES:
        raise ValueError(f"unknown noise {kind!r}; there are {', '.join(NOISES)}")
    random = Random(seed)
    noisy = _shuffle(pairs, random) if kind == "shuffled" else [_SINGLE[kind](pair, random) for pair in pairs]
    return [replace(pair, noise=kind) for pair in noisy]
