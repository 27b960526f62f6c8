"""Plain text, line by line: a line is a passage, white space around it and empty lines stay."""

from __future__ import annotations

from rela.markup.html_files import INLINE, html_tokens
from rela.markup.tokens import BREAK, CLOSE, OPEN, POINT, TEXT, Token


def plain_tokens(text: str) -> list[Token]:
    """The tokens of plain text."""
    tokens = []
    for line in text.splitlines(keepends=True):
        content = line.rstrip("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029")
        tokens += [Token(TEXT, content), Token(BREAK, line[len(content) :])]
    return tokens


def tagged_tokens(text: str) -> list[Token]:
    """The tokens of a line of text in which inline tags of HTML may stand; any other < is a character."""
    tokens = []
    for token in html_tokens(text):
        known = token.name in INLINE or token.kind in (TEXT, POINT)
        kind = token.kind if known and token.kind in (TEXT, OPEN, CLOSE, POINT) else POINT
        tokens.append(Token(kind, token.raw, token.name))
    return tokens
