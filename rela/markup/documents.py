"""Documents by the ending of their name: parsed, translated, and written as they were."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

from rela.files import read_all
from rela.markup.android import add_android, escape_android, is_android
from rela.markup.entities import add_escaped, add_markdown, add_plain, escape
from rela.markup.gettext_files import gettext_document
from rela.markup.html_files import html_tokens
from rela.markup.markdown_files import markdown_tokens
from rela.markup.plain_files import plain_tokens
from rela.markup.subtitles import subtitle_document
from rela.markup.tokens import BREAK, Block, Document, Token, parts_of, split_lines
from rela.markup.translate import PassageTranslator
from rela.markup.xml_files import xml_tokens


def html_document(text: str) -> Document:
    return Document([Block(list(parts_of(html_tokens(text), add_escaped)))], escape)


def xml_document(text: str) -> Document:
    add_text, written = (add_android, escape_android) if is_android(text) else (add_escaped, escape)
    return Document([Block(list(parts_of(xml_tokens(text), add_text)))], written)


def markdown_document(text: str) -> Document:
    return Document([Block(list(parts_of(markdown_tokens(text), add_markdown)))])


def plain_document(text: str) -> Document:
    return Document([Block(list(parts_of(plain_tokens(text), add_plain)))])


def tagged_document(text: str) -> Document:
    """Lines that may hold tags of HTML: a line comes out as a line."""
    tokens: list[Token] = []
    for line in split_lines(text):
        content = line.rstrip("\r\n")
        tokens += [*html_tokens(content), Token(BREAK, line[len(content) :])]
    return Document([Block(list(parts_of(tokens, add_escaped)))], escape)


FORMATS: dict[str, Callable[[str], Document]] = {
    "html": html_document,
    "xml": xml_document,
    "md": markdown_document,
    "txt": plain_document,
    "srt": subtitle_document,
    "po": gettext_document,
    "tagged": tagged_document,
}
ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "xml",
    ".xml": "xml",
    ".md": "md",
    ".markdown": "md",
    ".srt": "srt",
    ".po": "po",
}
"""Formats by ending; .txt is not among them, since a plain text may be a corpus of a sentence a line."""
BYTE_ORDER_MARK = "\ufeff"
DECLARATIONS = {
    "html": re.compile(
        r"<meta\s[^>]*charset\s*=\s*[\"']?([\w.:-]+)|^\s*<\?xml\s[^>]*encoding\s*=\s*[\"']([\w.:-]+)", re.I
    ),
    "xml": re.compile(r"^\s*<\?xml\s[^>]*encoding\s*=\s*[\"']([\w.:-]+)"),
    "po": re.compile(r'^"Content-Type:[^"\n]*charset=([\w.:-]+)', re.M | re.I),
}
"""Where a document of a format says which encoding it is in."""


def format_of(path: str | Path) -> str | None:
    """The format that a file's name says, or None for lines of text."""
    return ENDINGS.get(Path(path).suffix.lower())


def parse_document(text: str, format: str) -> Document:
    """A document of a format of FORMATS."""
    if format not in FORMATS:
        raise ValueError(f"the document's format is {format!r}; wanted one of {', '.join(FORMATS)}")
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    document = FORMATS[format](text.removeprefix(mark))
    return Document([mark, *document.blocks], document.escape) if mark else document


def translate_document(text: str, format: str, translator: PassageTranslator) -> str:
    """The document in the other language: same format, every tag once, and what is not prose as it was."""
    document = parse_document(text, format)
    return document.fill(translator.translate(document.passages, document.escape))


def read_document(path: str | Path | None, format: str) -> str:
    """The text of a file in UTF-8, or of the standard input, line ends as they are; a mark of byte order stays.

    One that declares another encoding is refused: a reader would take the translation's letters for others.
    """
    with contextlib.nullcontext(sys.stdin.buffer) if path is None else open(path, "rb") as file:
        data = read_all(file, "the document")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line}: not UTF-8") from None
    declared = DECLARATIONS[format].search(text.removeprefix(BYTE_ORDER_MARK)) if format in DECLARATIONS else None
    encoding = next(filter(None, declared.groups())) if declared else "utf-8"
    if encoding.lower() not in ("utf-8", "utf8"):
        raise ValueError(f"the document declares the encoding {encoding}; wanted a file in UTF-8 that says so")
    return text
