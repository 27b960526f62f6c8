"""String resources of Android, an XML in which quotation marks and others are written with a backslash."""

from __future__ import annotations

import re

from rela.markup.entities import add_escaped, escape
from rela.markup.passages import PassageBuilder

ROOT = re.compile(r"\s*(?:<[?!][^>]*>\s*)*<resources\b")
STRINGS = re.compile(r"<(?:string|plurals|string-array)\s[^<>]*\bname=")
ESCAPED = re.compile(r'\\u[0-9a-fA-F]{4}|\\.|"', re.DOTALL)
PLAIN = frozenset("'\"\\")


def is_android(text: str) -> bool:
    """Whether an XML document holds string resources of Android."""
    return ROOT.match(text) is not None and STRINGS.search(text) is not None


def add_android(builder: PassageBuilder, raw: str) -> None:
    r"""Add text of a resource: \' \" \\ and \u of a letter are characters, all else comes back as it is written."""
    at = 0
    for match in ESCAPED.finditer(raw):
        add_escaped(builder, raw[at : match.start()])
        written = match.group()
        character = chr(int(written[2:], 16)) if len(written) > 2 else written[1:]
        if character in PLAIN or (len(written) > 2 and character.isalpha()):
            builder.add_text(character)
        else:
            builder.add_word(written, raw[match.end() : match.end() + 1], is_space=written in (r"\n", r"\t"))
        at = match.end()
    add_escaped(builder, raw[at:])


def escape_android(text: str) -> str:
    """Text for a resource."""
    return re.sub(r"""(["'\\])""", r"\\\1", escape(text))
