"""Text with character references, &amp; and the like: decoded for the model, kept where they are no letters."""

from __future__ import annotations

import html
import re

from rela.markup.passages import PassageBuilder

REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
PLAIN = frozenset("&<>\"'")


def add_escaped(builder: PassageBuilder, raw: str) -> None:
    """Add text as it stands in HTML or XML.

    A reference to a letter is part of its word, and &amp; &lt; &gt; &quot; &apos; are characters. All others, such as
    &nbsp; and &mdash;, are marks that come back as they are written.
    """
    at = 0
    for match in REFERENCE.finditer(raw):
        builder.add_text(raw[at : match.start()])
        character = html.unescape(match.group())
        if character in PLAIN or (character != match.group() and character.isalnum()):
            builder.add_text(character)
        elif character.isspace():
            builder.add_word(match.group(), "", is_space=True)
        else:
            builder.add_word(match.group(), raw[match.end() : match.end() + 1])
        at = match.end()
    builder.add_text(raw[at:])


def add_markdown(builder: PassageBuilder, raw: str) -> None:
    """Add text of Markdown, where a reference may stand for what would be a marker: all but letters are kept."""
    at = 0
    for match in REFERENCE.finditer(raw):
        character = html.unescape(match.group())
        builder.add_text(raw[at : match.start()])
        if character != match.group() and character.isalnum():
            builder.add_text(character)
        else:
            builder.add_word(match.group(), raw[match.end() : match.end() + 1])
        at = match.end()
    builder.add_text(raw[at:])


def add_plain(builder: PassageBuilder, raw: str) -> None:
    """Add text in which nothing is escaped."""
    builder.add_text(raw)


def escape(text: str) -> str:
    """Text for HTML or XML; quotation marks need no reference between tags."""
    return html.escape(text, quote=False)
