"""`rela translate` of documents: which format, what else is asked for, and the file in the other language."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rela.terminal import chunked, input_lines, output_lines

LINES = ("txt", "tagged")
"""Formats whose lines are independent, so that a file of any size is translated as it comes."""


def document_format(source: Path | None, asked: str | None, glossary: Path | None) -> str | None:
    """The format of rela.markup to translate by, or None for plain lines; a glossary needs at least "txt"."""
    from rela.markup.documents import FORMATS, format_of

    if asked is not None and asked not in (*FORMATS, "lines"):
        raise ValueError(f"document is {asked!r}; wanted one of {', '.join(FORMATS)}, lines")
    found = asked or (None if source is None else format_of(source))
    found = None if found == "lines" else found
    return "txt" if found is None and glossary is not None else found


def refuse_for_documents(given: dict[str, bool], kind: str) -> None:
    """Refuse options that are for lines."""
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"{', '.join(wrong)} with a document ({kind}): wanted --document lines, or without")


def make_passages(translator: Any, glossary: Path | None, document: str | None, options: dict[str, Any]) -> Any:
    """What translates passages; the lines of a corpus, which only a glossary brings here, are sentences already."""
    from rela.markup.glossary import Glossary
    from rela.markup.translate import PassageTranslator

    terms = None if glossary is None else Glossary.load(glossary)
    return PassageTranslator(translator, terms, split=document != "lines", **options)


def translate_file(passages: Any, source: Path | None, out: Path | None, kind: str, window: int | None) -> None:
    """Translate a file, or the standard input, to another one, or the standard output; lines `window` at a time."""
    from rela.decoding.windows import WINDOW
    from rela.markup.documents import read_document, translate_document

    if kind in LINES:
        with output_lines(out) as write:
            for lines in chunked(input_lines(source), WINDOW if window is None else window):
                text = "".join(f"{line}\n" for line in lines)
                for line in translate_document(text, kind, passages).split("\n")[:-1]:
                    write(line)
        return
    name = "standard input" if source is None else source
    try:
        translated = translate_document(read_document(source, kind), kind, passages)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    write_whole(out, translated)


def write_whole(out: Path | None, text: str) -> None:
    """Write a text as it is, to a file that appears when it is complete or to the standard output."""
    from rela.files import write_bytes

    if out is None or str(out) in ("-", "/dev/stdout"):
        sys.stdout.write(text)
        return
    write_bytes(out, text.encode("utf-8"))
