"""A passage: plain text to translate, and the marks on it that are put back into the translation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """Something on characters start … end of a passage that is written again where those words went, exactly once.

    Marks lie inside or beside one another and never cross. A mark that covers nothing is a point between words.
    """

    start: int
    end: int
    before: str = ""
    """Written in front: an opening tag, or the whole of what covers no text."""
    after: str = ""
    """Written behind: the closing tag."""
    instead: str | None = None
    """Written in place of the translated words: a term of a glossary."""
    space_before: bool = False
    """A space stood in front, so one is put there again; tags leave spaces as they are."""
    space_after: bool = False
    instead_of_space: bool = False
    """It stands for a space, as &nbsp; does: the space behind it goes."""
    is_word: bool = False
    """It is text rather than a tag: a placeholder or a term."""
    if_empty: str | None = None
    """Written where it covers no word of the translation, if that is not simply its two sides."""
    children: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Passage:
    """Plain text and its outermost marks, in order."""

    text: str
    marks: tuple[Mark, ...] = ()

    @property
    def has_words(self) -> bool:
        """Whether there is a letter to translate."""
        return any(character.isalpha() for character in self.text)


@dataclass
class Open:
    """A mark whose end has not come yet."""

    start: int
    before: str
    if_empty: str | None = None
    children: list[Mark] = field(default_factory=list)


class PassageBuilder:
    """Builds a passage from left to right: text, points, and tags that open and close."""

    def __init__(self) -> None:
        self.text = ""
        self.open = [Open(0, "")]
        self.has_space = False

    def add_text(self, text: str) -> None:
        """Text; behind a word that is left out between two spaces, its first space is left out too."""
        self.text += text[1:] if self.has_space and text.startswith(" ") else text
        self.has_space = self.has_space and not text

    def add_word(self, raw: str, behind: str, is_space: bool = False) -> None:
        """A placeholder or an image: written again like a word, with a space on the sides where one stands here.

        `behind` is the character that follows. What stands for a space (`is_space`), or between two words without one,
        is a space to the model.
        """
        before = self.text[-1:]
        instead = is_space or (before.isalnum() and behind.isalnum())
        at, apart = len(self.text), (before.isspace(), not behind or behind.isspace())
        mark = Mark(at, at, raw, "", None, *((False, False) if instead else apart), instead, is_word=True)
        self.open[-1].children.append(mark)
        self.text += " " if instead else ""
        self.has_space = before == behind == " " and not instead

    def add_opening(self, raw: str, if_empty: str | None = None) -> None:
        self.open.append(Open(len(self.text), raw, if_empty))

    def add_closing(self, raw: str) -> None:
        """End the tag that was opened last."""
        opened = self.open.pop()
        children = tuple(opened.children)
        mark = Mark(opened.start, len(self.text), opened.before, raw, if_empty=opened.if_empty, children=children)
        self.open[-1].children.append(mark)

    def finish(self) -> Passage:
        """The passage; every tag has been closed."""
        assert len(self.open) == 1, "a tag was not closed"
        return Passage(self.text, tuple(self.open[0].children))


def all_marks(marks: Sequence[Mark]) -> Iterator[Mark]:
    """Marks and those inside them."""
    for mark in marks:
        yield mark
        yield from all_marks(mark.children)
