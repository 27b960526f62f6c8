"""Passages translated: sentence by sentence, with placeholders, terms and marks put back by the online word links."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rela.alignment.online import OnlineLinks
from rela.data.subwords import UNK
from rela.decoding.translate import Translator
from rela.evaluation.link_files import Link
from rela.markup.glossary import Glossary, without_satisfied
from rela.markup.passages import Passage
from rela.markup.place import Escape, place_marks
from rela.markup.placeholders import all_copied, find_placeholders, hide_placeholders
from rela.markup.sentences import split_sentences


@dataclass(frozen=True)
class Translated:
    """A translated text and its word links."""

    text: str
    links: frozenset[Link]


class PassageTranslator:
    """Translates passages with one model; `options` are those of `Translator.translate`."""

    def __init__(
        self, translator: Translator, glossary: Glossary | None = None, split: bool = True, **options: Any
    ) -> None:
        self.translator, self.glossary, self.split, self.options = translator, glossary, split, options
        self.links = OnlineLinks(translator, no_break_splits=True)  # as the words of a passage are counted

    def translate(self, passages: Sequence[Passage], escape: Escape = str) -> list[str]:
        """Each passage's translation with its marks; text is escaped, what has no letter stays as it is.

        A placeholder is first shown to the model. Where it does not come out as it went in, the passage is translated
        once more without it, and the placeholder is put where the words beside it went.
        """
        shown = [self.with_terms(passage) for passage in passages]
        hidden = [hide_placeholders(passage, escape) for passage in shown]
        texts = self.translate_texts([passage.text for passage in shown], [self.is_plain(p.text) for p in shown])
        failed = [i for i, text in enumerate(texts) if text is None or lost_placeholder(shown[i].text, text.text)]
        again = self.translate_texts([hidden[i].text for i in failed], [True] * len(failed))
        used = list(shown)
        for i, text in zip(failed, again, strict=True):
            used[i], texts[i] = hidden[i], text
        return [
            self.finish(passage, text, escape) for passage, text in zip(used, texts, strict=True) if text is not None
        ]

    def translate_text(self, text: str) -> str:
        """A plain text in the other language."""
        return self.translate([Passage(text)])[0]

    def with_terms(self, passage: Passage) -> Passage:
        return passage if self.glossary is None else self.glossary.mark(passage)

    def is_plain(self, text: str) -> bool:
        """Whether the model knows every character of the text's placeholders, so that it may copy them."""
        sides = self.translator.subwords.source, self.translator.subwords
        return all(UNK not in side.encode(item) for item in find_placeholders(text) for side in sides)

    def finish(self, passage: Passage, translated: Translated, escape: Escape) -> str:
        """The translation with the passage's marks, between the white space that was around it."""
        core = passage.text.strip()
        lead = passage.text[: len(passage.text) - len(passage.text.lstrip())]
        trail = passage.text[len(passage.text.rstrip()) :] if core else ""
        target = lead + translated.text + trail
        marks = without_satisfied(passage.marks, translated.text)
        return place_marks(dataclasses.replace(passage, marks=marks), target, translated.links, escape)

    def sentences(self, passages: Sequence[Passage]) -> list[str]:
        """The sentences that the model is given, with their placeholders."""
        return [passage.text[start:end] for passage in passages for start, end in self.bounds(passage.text)]

    def translate_texts(self, texts: Sequence[str], wanted: Sequence[bool]) -> list[Translated | None]:
        """The texts that are wanted, translated sentence by sentence in one batch."""
        sentences = [
            [text[start:end] for start, end in self.bounds(text)] if wish else []
            for text, wish in zip(texts, wanted, strict=True)
        ]
        lines = [line for group in sentences for line in group if has_letter(line)]
        found = self.translate_lines(lines)
        return [
            join(text, self.bounds(text), [next(found) if has_letter(line) else unchanged(line) for line in group])
            if wish
            else None
            for text, wish, group in zip(texts, wanted, sentences, strict=True)
        ]

    def translate_lines(self, lines: list[str]) -> Iterator[Translated]:
        for (best,) in self.translator.translate_nbest(lines, 1, self.links, **self.options):
            yield Translated(best.text, frozenset(best.links or ()))

    def bounds(self, text: str) -> list[tuple[int, int]]:
        """Where the sentences of a text are."""
        if self.split:
            return split_sentences(text)
        core = text.strip()
        start = text.index(core) if core else 0
        return [(start, start + len(core))] if core else []


def lost_placeholder(source: str, target: str) -> bool:
    """Whether the source has placeholders and the target has not the same."""
    return bool(find_placeholders(source)) and not all_copied(source, target)


def has_letter(text: str) -> bool:
    return any(character.isalpha() for character in text)


def unchanged(line: str) -> Translated:
    """A line that holds nothing to translate, each word linked to itself."""
    return Translated(line, frozenset((i, i) for i in range(len(line.split()))))


def join(text: str, bounds: Sequence[tuple[int, int]], sentences: Sequence[Translated]) -> Translated:
    """Translated sentences as one text, with the white space between them that the source has."""
    if not bounds:
        return Translated("", frozenset())
    target, links = "", set[Link]()
    for number, ((start, _), sentence) in enumerate(zip(bounds, sentences, strict=True)):
        if number:
            target += text[bounds[number - 1][1] : start]
        first = len(text[:start].split()), len(target.split())
        links |= {(first[0] + i, first[1] + j) for i, j in sentence.links}
        target += sentence.text
    return Translated(target, frozenset(links))
