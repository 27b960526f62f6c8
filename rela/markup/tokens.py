"""Tokens of a document with tags: raw slices that make up the whole of it, and the passages among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rela.markup.passages import Passage, PassageBuilder

TEXT, OPEN, CLOSE, POINT, BREAK = "text", "open", "close", "point", "break"

# Levels of inline tags within one another that are followed.
DEEPEST = 50


@dataclass(frozen=True)
class Token:
    """A slice of a document: text, an inline tag that opens or closes, an inline point, or what ends a passage.

    The raw slices of all tokens, one after another, are the document.
    """

    kind: str
    raw: str
    name: str = ""
    if_empty: str | None = None
    """Of an opening: what is written instead of the pair where no word is left between its sides."""


Part = str | tuple[Sequence[Token], Passage]
"""What stays as it is, or tokens with the passage that they are."""
AddText = Callable[[PassageBuilder, str], None]
"""Adds raw text to a passage: decodes what is escaped in it."""


def parts_of(tokens: Sequence[Token], add_text: AddText) -> Iterator[Part]:
    """A document as what stays and what is translated, in order; the passages' tags are balanced."""
    run: list[Token] = []
    for token in tokens:
        if token.kind == BREAK:
            yield from run_parts(run, add_text)
            run = []
            yield token.raw
        else:
            run.append(token)
    yield from run_parts(run, add_text)


def run_parts(run: Sequence[Token], add_text: AddText) -> Iterator[Part]:
    """A run of text and inline tags as passages; a tag without its other half ends a passage and stays."""
    unpaired = unmatched(run)
    piece: list[Token] = []
    for index, token in enumerate(run):
        if index in unpaired:
            yield from passage_parts(piece, add_text)
            piece = []
            yield token.raw
        else:
            piece.append(token)
    yield from passage_parts(piece, add_text)


def passage_parts(run: list[Token], add_text: AddText) -> Iterator[Part]:
    """A balanced run, as a passage if it holds words."""
    if run:
        passage = make_passage(run, add_text)
        yield (run, passage) if passage.has_words else "".join(token.raw for token in run)


def unmatched(run: Sequence[Token]) -> set[int]:
    """The indices of tags that have no other half in the run, cross others, or lie too deep.

    Such a tag ends a passage. So the tags that are open around it lose their other half too, and between the two halves
    of those that keep it no passage ends.
    """
    unpaired: set[int] = set()
    waiting: list[int] = []
    for index, token in enumerate(run):
        if token.kind == OPEN and len(waiting) < DEEPEST:
            waiting.append(index)
        elif token.kind == CLOSE and waiting and run[waiting[-1]].name == token.name:
            waiting.pop()
        elif token.kind in (OPEN, CLOSE):
            unpaired |= {index, *waiting}
            waiting = []
    return unpaired | set(waiting)


def split_lines(text: str) -> list[str]:
    """The lines of a text with their ends; unlike str.splitlines, a form feed or U+2028 ends none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def make_passage(run: Sequence[Token], add_text: AddText) -> Passage:
    """A balanced run as a passage."""
    builder = PassageBuilder()
    for index, token in enumerate(run):
        if token.kind == TEXT:
            add_text(builder, token.raw)
        elif token.kind == OPEN:
            builder.add_opening(token.raw, token.if_empty)
        elif token.kind == CLOSE:
            builder.add_closing(token.raw)
        else:  # an image, code: a word that is not translated
            others = (run[after] for after in range(index + 1, len(run)))
            behind = next((other.raw[:1] for other in others if other.kind not in (OPEN, CLOSE)), "")
            builder.add_word(token.raw, behind if behind != "<" else ".")
    return builder.finish()


@dataclass(frozen=True)
class Block:
    """Parts of a document that are written together, by `write`, when their passages are translated."""

    parts: Sequence[Part]
    write: Callable[[str], str] = str


@dataclass(frozen=True)
class Document:
    """What stays, and blocks to translate, in order; `escape` is what text needs in this format."""

    blocks: Sequence[str | Block]
    escape: Callable[[str], str] = str

    @property
    def passages(self) -> list[Passage]:
        """All that is to be translated."""
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        return [part[1] for block in blocks for part in block.parts if not isinstance(part, str)]

    def fill(self, translations: Sequence[str]) -> str:
        """The document with translations in place of its passages."""
        texts = iter(translations)
        written = []
        for block in self.blocks:
            if isinstance(block, str):
                written.append(block)
            else:
                inside = "".join(part if isinstance(part, str) else next(texts) for part in block.parts)
                written.append(block.write(inside))
        return "".join(written)
