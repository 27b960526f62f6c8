"""A glossary: terms whose translation is given.

A term is enforced by copy-through: the model translates the sentence, and the words that the term's words are linked to
are replaced by the given translation. Where the model says it already, nothing changes.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from rela.files import read_text
from rela.markup.passages import Mark, Passage, PassageBuilder, all_marks
from rela.markup.rebuild import rebuild


class Glossary:
    """Terms of the source language with their translations.

    A term in small letters is found whatever the case of the text is, any other as it is written; longer terms come
    before shorter ones, and a term is never found inside a word.
    """

    def __init__(self, terms: dict[str, str]) -> None:
        self.terms = terms
        self.by_key = {key_of(term): translation for term, translation in terms.items()}
        parts = [
            rf"(?i:{pattern_of(term)})" if term == term.lower() else pattern_of(term)
            for term in sorted(terms, key=len, reverse=True)
        ]
        self.pattern = re.compile("|".join(rf"(?<!\w)(?:{part})(?!\w)" for part in parts)) if parts else None

    @classmethod
    def load(cls, path: str | Path) -> Glossary:
        """The terms of a file: source term, tab, target term on each line; empty lines and lines of # are left out."""
        terms: dict[str, str] = {}
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            source, tab, target = line.partition("\t")
            source, target = " ".join(source.split()), " ".join(target.split())
            if not tab or not source or not target or "\t" in line.partition("\t")[2].strip():
                raise ValueError(f"{path}, line {number}: {line!r}; wanted source term, tab, target term")
            if terms.get(source, target) != target:
                raise ValueError(f"{path}, line {number}: {source!r} has two translations, {terms[source]!r} before")
            terms[source] = target
        return cls(terms)

    def mark(self, passage: Passage) -> Passage:
        """The passage with a mark on each term; one that a tag begins or ends in is not found."""
        if self.pattern is None:
            return passage
        pattern = self.pattern

        def add_text(builder: PassageBuilder, text: str, following: str) -> None:
            at = 0
            for match in pattern.finditer(text):
                builder.add_text(text[at : match.start()])
                start = len(builder.text)
                builder.add_text(match.group())
                translation = self.translation(match.group())
                before = start == 0 or builder.text[start - 1].isspace()
                behind = text[match.end() : match.end() + 1] or following
                after = not behind or behind.isspace()
                mark = Mark(start, len(builder.text), "", "", translation, before, after, is_word=True)
                builder.open[-1].children.append(mark)
                at = match.end()
            builder.add_text(text[at:])

        return rebuild(passage, add_text)

    def translation(self, found: str) -> str:
        """The given translation of a term as it stands in a text."""
        exact = " ".join(found.split())
        return self.terms[exact] if exact in self.terms else self.by_key[key_of(exact)]


def pattern_of(term: str) -> str:
    """A regular expression for a term with any white space between its words."""
    return r"\s+".join(map(re.escape, term.split()))


def key_of(term: str) -> str:
    return term.lower()


def without_satisfied(marks: tuple[Mark, ...], target: str) -> tuple[Mark, ...]:
    """The marks without those of terms whose translation the target already has as often as it should."""
    wanted: dict[str, int] = {}
    for mark in all_marks(marks):
        if mark.instead is not None:
            wanted[mark.instead] = wanted.get(mark.instead, 0) + 1
    satisfied = {
        term for term, count in wanted.items() if len(re.findall(rf"(?<!\w){re.escape(term)}(?!\w)", target)) >= count
    }

    def kept(some: tuple[Mark, ...]) -> tuple[Mark, ...]:
        return tuple(
            dataclasses.replace(mark, children=kept(mark.children)) for mark in some if mark.instead not in satisfied
        )

    return kept(marks) if satisfied else marks
