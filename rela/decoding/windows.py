"""Lines in, groups of them out: read ahead, sorted by length, and cut to what is translated together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rela.decoding.background import Ahead

# Lines that are read, sorted by length and translated together when input is streamed.
WINDOW = 2048


@dataclass(frozen=True)
class Group:
    """Lines of a window that are translated together."""

    ids: list[list[int]]
    """Subwords of each."""
    numbers: list[int]
    """Of the lines, in the whole input."""
    places: list[int]
    """Of the lines, in their window."""
    answers: list[Any]
    """Of all lines of the window, for those who translate to fill in."""
    end_window: bool
    """Whether no other group of the window follows."""


def groups_of(
    read: Callable[[int], list[list[int]]], window: int, tokens: int, most: int | None = None
) -> Iterator[Group | None]:
    """Groups of at most `tokens` tokens and `most` lines; `read` gives a window of lines, from the one with a number on.

    None where what follows may not be there yet, or may not come: a time to give the answers one has.
    """
    number = 0
    ids = read(number)
    while ids:
        # A window this large is no dialogue: the next one is read while this one is translated.
        ahead = Ahead(read, number + len(ids)) if window >= WINDOW else None
        answers: list[Any] = [None] * len(ids)
        batches = list(batches_by_length([len(sentence) for sentence in ids], tokens, most))
        for places in batches:
            numbers = [number + place for place in places]
            yield Group([ids[place] for place in places], numbers, places, answers, places is batches[-1])
        if ahead is None or not ahead.is_there:
            yield None
        number += len(ids)
        ids = read(number) if ahead is None else ahead.result()


def batches_by_length(lengths: list[int], tokens: int, most: int | None = None) -> Iterator[list[int]]:
    """Indices, longest first, in groups of at most `most` whose longest sentence times count is at most `tokens` (or of one)."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        count = max(tokens // (lengths[order[start]] + 1), 1)
        count = count if most is None else min(count, most)
        yield order[start : start + count]
        start += count
