"""Sentence pairs to pick from, with their gold links where these are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rela.data.corpus import read_pairs
from rela.data.subwords import split_words
from rela.evaluation.alignment import GoldLinks, read_links
from rela.toy import generate

TOY_EXAMPLES, TOY_SEED = 16, 11
GUIDE_SOURCE = "David and the neighbours live in Berlin ."
GUIDE_TARGET = "David und die Nachbarn wohnen ja in Berlin ."
GUIDE_LINKS = frozenset({(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 7), (7, 8)})
GUIDE_WORD = 5
"""*ja*, which no English word stands for."""


@dataclass(frozen=True)
class Example:
    """A sentence pair; `gold` is None where its word links are not known."""

    source: str
    target: str
    gold: GoldLinks | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells pairs apart: the words, as links count them, not the spaces between them."""
        return " ".join(split_words(self.source)), " ".join(split_words(self.target))


def guide_example() -> Example:
    """A pair of the embedded corpus with a word that has no counterpart; the page begins with it."""
    return Example(GUIDE_SOURCE, GUIDE_TARGET, GoldLinks(GUIDE_LINKS, GUIDE_LINKS))


def toy_examples(source_language: str = "en", target_language: str = "de") -> list[Example]:
    """Pairs of the embedded corpus, whose links are known by construction; none for other languages than its two."""
    if {source_language, target_language} != {"en", "de"}:
        return []
    pairs = list(generate(TOY_EXAMPLES, TOY_SEED))
    links = [frozenset(pair.links) for pair in pairs]
    examples = [
        Example(pair.source, pair.target, GoldLinks(found, found)) for pair, found in zip(pairs, links, strict=True)
    ]
    examples = [guide_example(), *examples]
    return examples if source_language == "en" else [turned(example) for example in examples]


def turned(example: Example) -> Example:
    """The same pair for a model of the other direction."""
    gold = example.gold
    if gold is None:
        return Example(example.target, example.source)
    sure, possible = (frozenset((t, s) for s, t in links) for links in (gold.sure, gold.possible))
    return Example(example.target, example.source, GoldLinks(sure, possible))


def text_examples(
    source: Path, target: Path, links: Path | None = None, one_based: bool = False, flip: bool = False
) -> list[Example]:
    """Pairs of a text, with gold links if given; a link beyond a sentence's words is an error: the wrong file."""
    pairs = list(read_pairs(source, target, "raise"))
    if links is None:
        return [Example(*pair) for pair in pairs]
    gold = read_links(links, one_based, flip)
    if len(pairs) != len(gold):
        raise ValueError(f"{source} has {len(pairs)} sentences and {links} {len(gold)}; wanted equally many")
    examples = [Example(*pair, answer) for pair, answer in zip(pairs, gold, strict=True)]
    for number, (pair, answer) in enumerate(zip(pairs, gold, strict=True), start=1):
        S, T = (len(split_words(text)) for text in pair)
        for left, right in sorted(answer.possible):
            if left >= S or right >= T:
                raise ValueError(f"{links}, sentence {number}: link {left}-{right} is outside {S} and {T} words")
    return examples
