"""A passage made anew from its own parts, so that a function can turn pieces of its text into marks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rela.markup.passages import Mark, Open, Passage, PassageBuilder

AddText = Callable[[PassageBuilder, str, str], None]
"""Adds a stretch of text that no mark begins or ends in to a builder, as text, points and pairs.

The second string is the character of the passage that follows the stretch, whatever tag stands between them.
"""


def rebuild(passage: Passage, add_text: AddText) -> Passage:
    """The passage with each stretch of text between marks added by `add_text`; the marks stay around what they were."""
    builder = PassageBuilder()
    add_all(builder, passage.text, passage.marks, 0, len(passage.text), add_text)
    return builder.finish()


def add_all(builder: PassageBuilder, text: str, marks: Sequence[Mark], start: int, end: int, add_text: AddText) -> None:
    """Add characters start … end of a text with these marks among them."""
    at = start
    for mark in marks:
        add_text(builder, text[at : mark.start], text[mark.start : mark.start + 1])
        first = len(builder.text)
        builder.open.append(Open(first, ""))
        if mark.instead is None:
            add_all(builder, text, mark.children, mark.start, mark.end, add_text)
        else:
            builder.add_text(text[mark.start : mark.end])
        children = tuple(builder.open.pop().children)
        moved = dataclasses.replace(mark, start=first, end=len(builder.text), children=children)
        builder.open[-1].children.append(moved)
        at = mark.end
    add_text(builder, text[at:end], text[end : end + 1])
