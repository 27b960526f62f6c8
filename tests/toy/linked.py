"""Sentences of the embedded corpus with their links, drawn from any construction by their number."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from rela.toy.constructions import CONSTRUCTIONS, construction
from rela.toy.sentences import Sentence


@dataclass(frozen=True)
class Linked:
    """Both sentences as words, the first one without its capital letter, and the links in both directions."""

    construction: str
    sentence: Sentence

    @property
    def english(self) -> list[str]:
        first, *rest = self.sentence.english.split()
        return [first if first == "I" else first[0].lower() + first[1:], *rest]

    @property
    def german(self) -> list[str]:
        first, *rest = self.sentence.german.split()
        return [first[0].lower() + first[1:], *rest]

    def to_german(self, position: int) -> list[str]:
        """The German words that the English word at `position` is linked to."""
        return [self.german[j] for i, j in self.sentence.links if i == position]

    def to_english(self, position: int) -> list[str]:
        """The English words that the German word at `position` is linked to."""
        return [self.english[i] for i, j in self.sentence.links if j == position]

    def __repr__(self) -> str:
        return f"{self.construction}: {self.sentence.english} | {self.sentence.german} | {self.sentence.links}"


def sentences(*names: str) -> st.SearchStrategy[Linked]:
    """Any sentence of the named constructions, or of all."""

    def of(name: str) -> st.SearchStrategy[Linked]:
        space = construction(name)
        return st.integers(0, space.size - 1).map(lambda index: Linked(name, space[index]))

    return st.sampled_from(names or CONSTRUCTIONS).flatmap(of)
