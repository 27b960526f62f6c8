"""Links without those of a word and a punctuation mark, which translate each other in no pair of languages we know.

Of the sure links in the gold sets of four language pairs (German, French, Romanian and Chinese with English) at most
0.8 % are of that sort. Attention proposes many more: a comma of one language is often the only token near a conjunction
of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from rela.data.subwords import split_words
from rela.evaluation.link_files import Link

MARKS = frozenset(".,;:!?\"'`´()[]{}…„“”«»‹›¿¡‚‘’，。；：！？（）《》「」『』、،؛؟۔।॥")
"""Marks that translate no word: not hyphens, % or &."""


def is_mark(word: str) -> bool:
    """Whether a word has punctuation marks alone."""
    return bool(word) and MARKS.issuperset(word)


def same_sort(links: Set[Link], source: Sequence[str], target: Sequence[str]) -> frozenset[Link]:
    """The links (source word, target word) between two words or two punctuation marks."""
    marks = [[is_mark(word) for word in words] for words in (source, target)]
    return frozenset(link for link in links if marks[0][link[0]] == marks[1][link[1]])


def of_one_sort(found: Iterable[frozenset[Link]], pairs: Iterable[tuple[str, str]]) -> Iterator[frozenset[Link]]:
    """`same_sort` of the links of each pair of texts, in order."""
    for links, (source, target) in zip(found, pairs, strict=True):
        yield same_sort(links, split_words(source), split_words(target)) if links else links
