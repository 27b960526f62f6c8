"""Limits on the texts of one request."""

from __future__ import annotations

from collections.abc import Sequence

from rela.server.settings import ServerSettings
from rela.web.refused import Refused


def check_texts(texts: Sequence[str], settings: ServerSettings, *, count: int | None = None) -> None:
    """Refuse what is too much for one request; `count` is the number of sentences, if not each text is one."""
    sentences = len(texts) if count is None else count
    if sentences > settings.max_texts:
        raise Refused(f"the request has {sentences:,} sentences; wanted at most {settings.max_texts:,}", 413)
    characters = sum(map(len, texts))
    if characters > settings.max_characters:
        raise Refused(f"the request has {characters:,} characters; wanted at most {settings.max_characters:,}", 413)
    for number, text in enumerate(texts, start=1):
        check_unicode(f"text {number}", text)


def check_sentences(name: str, texts: Sequence[str]) -> None:
    """Refuse a line break: the model translates sentences, and the commands one for each line."""
    for number, text in enumerate(texts, start=1):
        if "\n" in text:
            raise Refused(f"{name} {number} holds a line break; wanted one sentence, each line a text of its own")


def check_unicode(name: str, text: str) -> None:
    """Refuse half a character, which JSON can say and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused(f"{name} holds half a character (a lone surrogate); wanted valid Unicode") from None
