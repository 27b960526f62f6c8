"""Windows of lines, cut into batches of similar length; a large window is read while the one before is translated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rela.decoding.background import Background

# Lines that are read and sorted by length together when input is streamed.
WINDOW = 2048


@dataclass(frozen=True)
class LineBatch:
    """Lines of a window that are translated together."""

    ids: list[list[int]]
    """Subwords of each line."""
    numbers: list[int]
    """Of the lines, in the whole input."""
    indices: list[int]
    """Of the lines, in their window."""
    results: list[Any]
    """One for each line of the whole window, shared by its batches; None until the line is translated."""
    is_last: bool
    """Whether no other batch of the window follows."""


def line_batches(
    read: Callable[[int], list[list[int]]], window: int, tokens: int, most: int | None = None, first: int = 0
) -> Iterator[LineBatch | None]:
    """Batches of at most `tokens` tokens and `most` lines; `read(n)` gives a window of lines, the first of them line n.

    The first line of all is line `first`.

    None comes where the next window may not have arrived yet, or may never: the time to give the results so far.
    """
    number = first
    ids = read(number)
    while ids:
        # Nobody types a window this large, so the next one is read while this one is translated.
        following = Background(read, number + len(ids)) if window >= WINDOW else None
        results: list[Any] = [None] * len(ids)
        batches = list(batches_by_length([len(sentence) for sentence in ids], tokens, most))
        for indices in batches:
            numbers = [number + index for index in indices]
            yield LineBatch([ids[index] for index in indices], numbers, indices, results, indices is batches[-1])
        if following is None or not following.is_ready:
            yield None
        number += len(ids)
        ids = read(number) if following is None else following.result()


def batches_by_length(lengths: list[int], tokens: int, most: int | None = None) -> Iterator[list[int]]:
    """Indices, longest first, in batches of at most `most`, padded to at most `tokens` tokens (or of one sentence)."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        count = max(tokens // (lengths[order[start]] + 1), 1)
        count = count if most is None else min(count, most)
        yield order[start : start + count]
        start += count
