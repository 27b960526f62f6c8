"""Sentence pairs to pick from, with their gold links where these are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rela.data.corpus import read_pairs
from rela.data.subwords import tidy
from rela.evaluation.alignment import GoldLinks, read_links
from rela.toy import generate

TOY_EXAMPLES, TOY_SEED = 16, 11


@dataclass(frozen=True)
class Example:
    """A sentence pair; `gold` is None where its word links are not known."""

    source: str
    target: str
    gold: GoldLinks | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells pairs apart: the words, not the spaces between them."""
        return tidy(self.source), tidy(self.target)


def toy_examples() -> list[Example]:
    """Pairs of the embedded English–German corpus, whose links are known by construction."""
    pairs = generate(TOY_EXAMPLES, TOY_SEED)
    return [
        Example(pair.source, pair.target, GoldLinks(frozenset(pair.links), frozenset(pair.links))) for pair in pairs
    ]


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
        S, T = (len(tidy(text).split()) for text in pair)
        for left, right in sorted(answer.possible):
            if left >= S or right >= T:
                raise ValueError(f"{links}, sentence {number}: link {left}-{right} is outside {S} and {T} words")
    return examples
