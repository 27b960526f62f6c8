"""Text with character references, &amp; and the like: decoded for the model, kept where they are no letters."""

from __future__ import annotations

import html
import re
from html.entities import html5

from rela.markup.passages import PassageBuilder

REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
# HTML reads some names, and numbers, without the semicolon too: &copy 2020
SHORT_NAMES = sorted((name for name in html5 if not name.endswith(";")), key=len, reverse=True)
HTML_REFERENCE = re.compile(rf"{REFERENCE.pattern}|&(?:#[0-9]+|#[xX][0-9a-fA-F]+|{'|'.join(SHORT_NAMES)})")
PLAIN = frozenset("&<>\"'")


def add_escaped(builder: PassageBuilder, raw: str) -> None:
    """Add text as it stands in HTML or XML.

    A reference to a letter is part of its word, and &amp; &lt; &gt; &quot; &apos; are characters. All others, such as
    &nbsp; and &mdash;, are marks that come back as they are written.
    """
    at = 0
    for match in HTML_REFERENCE.finditer(raw):
        builder.add_text(raw[at : match.start()])
        character = html.unescape(match.group())
        written = match.group().removesuffix(";") + ";"  # another word may come to stand behind it
        if character in PLAIN or (character != match.group() and character.isalnum()):
            builder.add_text(character)
        elif character.isspace():
            builder.add_word(written, "", is_space=True)
        else:
            builder.add_word(written, raw[match.end() : match.end() + 1])
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
