"""Words with marks of what they express, and the links that follow from these."""

from collections.abc import Sequence
from typing import NamedTuple


class Word(NamedTuple):
    """A surface form and the marks of what it expresses; words of two languages are linked where they share a mark.

    A mark names a piece of meaning by its role in the sentence, such as "s.n" for the noun of the subject. A word
    without marks expresses nothing that the other language says with a word, and stays without a link.
    """

    text: str
    marks: tuple[str, ...] = ()


Words = list[Word]
Links = tuple[tuple[int, int], ...]

COMMA = Word(",")
_CLOSING = {",", ".", "?"}


def find_links(english: Sequence[Word], german: Sequence[Word]) -> Links:
    """Every (English position, German position) whose words share a mark, sorted."""
    positions: dict[str, list[int]] = {}
    for source, word in enumerate(english):
        for mark in word.marks:
            positions.setdefault(mark, []).append(source)
    links = set()
    for target, word in enumerate(german):
        for mark in word.marks:
            for source in positions.get(mark, ()):
                links.add((source, target))
    return tuple(sorted(links))


def settle_commas(words: Sequence[Word]) -> Words:
    """The words without the commas that close a clause just before another comma or the end."""
    last = len(words) - 1
    return [
        word
        for position, word in enumerate(words)
        if word.text != "," or position == last or words[position + 1].text not in _CLOSING
    ]


def capitalise(text: str) -> str:
    """The text with its first letter in upper case, and the rest as it was."""
    return text[:1].upper() + text[1:]


def to_text(words: Sequence[Word]) -> str:
    """One line, words separated by spaces, beginning with a capital letter."""
    return capitalise(" ".join([word.text for word in words]))
