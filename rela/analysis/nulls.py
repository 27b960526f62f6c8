"""Queries that look at nothing (Figures 6 and 7): how often, in which head, beside which words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from rela.analysis.record import START, AttentionRecord
from rela.analysis.words import SPECIAL, punctuation_apart, word_index, words

WordClasses = Callable[[str], str] | Sequence[str]
"""The class of a word (a word list), or one class for each word of the sentence (what a tagger gives).

A punctuation mark is a word of its own here. A tagger may also give a class for each word between spaces.
"""
POSITIONS = ("previous", "current")


def null_rows(record: AttentionRecord) -> Tensor:
    """[L, H, T], True where every weight of the row is exactly zero."""
    return (record.weights == 0).all(dim=-1)


def null_rate(record: AttentionRecord) -> Tensor:
    """[L, H], the share of queries that look at nothing.

    null rate = |{t : α[t, s] = 0 for all s}| / T
    """
    return null_rows(record).double().mean(dim=-1)


@dataclass(frozen=True, eq=False)
class ClassNullRate:
    """The null rate [L, H] over the rows of one word class, and how many rows that was."""

    rate: Tensor
    rows: int


class NullsByClass:
    """Null rate by the class of a word, over as many records as are added.

    `position="previous"` asks what a head does after a word: it takes the rows that begin a word (or </s>) and
    classifies the word just finished, <s> for the first. `position="current"` takes every row and classifies the
    word that the row's token belongs to. <s> and </s> are their own classes.
    """

    def __init__(self, position: str = "previous"):
        if position not in POSITIONS:
            raise ValueError(f"position is {position!r}; wanted one of {', '.join(POSITIONS)}")
        self.position = position
        self._nulls: dict[str, Tensor] = {}
        self._rows: dict[str, int] = {}

    def add(self, record: AttentionRecord, word_classes: WordClasses) -> None:
        """Count the rows of one record."""
        nulls = null_rows(record)
        for row, name in row_classes(record.queries, word_classes, self.position):
            counted = nulls[..., row].long().cpu()
            self._nulls[name] = self._nulls[name] + counted if name in self._nulls else counted
            self._rows[name] = self._rows.get(name, 0) + 1

    def rates(self) -> dict[str, ClassNullRate]:
        """The null rate of each class seen, the most frequent class first."""
        by_frequency = sorted(self._rows, key=lambda name: (-self._rows[name], name))
        return {
            name: ClassNullRate(self._nulls[name].double() / self._rows[name], self._rows[name])
            for name in by_frequency
        }


def null_rate_by_class(
    record: AttentionRecord, word_classes: WordClasses, position: str = "previous"
) -> dict[str, ClassNullRate]:
    """The null rate of one record by the class of the previous or current word; see `NullsByClass`."""
    counts = NullsByClass(position)
    counts.add(record, word_classes)
    return counts.rates()


def row_classes(pieces: Sequence[str], word_classes: WordClasses, position: str) -> list[tuple[int, str]]:
    """(row, class) of the rows that count, in order."""
    index, classes = classified(pieces, word_classes)
    if position == "current":
        return [(row, classes[word]) for row, word in enumerate(index)]
    begins = [row for row, word in enumerate(index) if row == 0 or index[row - 1] != word]
    return [(row, classes[index[row] - 1] if index[row] else START) for row in begins]


def classified(pieces: Sequence[str], word_classes: WordClasses) -> tuple[tuple[int, ...], list[str]]:
    """The number of the word that each piece belongs to, and the class of each word."""
    apart = punctuation_apart(pieces)
    if callable(word_classes):
        return word_index(apart), [word if word in SPECIAL else word_classes(word) for word in words(apart)]
    counts = []
    for marked in (apart, pieces):
        spelled = words(marked)
        counts.append(sum(word not in SPECIAL for word in spelled))
        if counts[-1] == len(word_classes):
            given = iter(word_classes)
            return word_index(marked), [word if word in SPECIAL else next(given) for word in spelled]
    raise ValueError(
        f"{len(word_classes)} classes for {counts[0]} words and punctuation marks ({counts[1]} words between spaces); "
        "one for each is wanted"
    )
