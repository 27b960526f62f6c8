"""How good word links are: alignment error rate, precision and recall against gold links."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from rela.evaluation.link_files import GoldLinks, Link, naacl, pharaoh, read_hypotheses, read_links, talp
from rela.evaluation.symmetrise import symmetrise

__all__ = [
    "AlignmentCounts",
    "AlignmentScore",
    "GoldLinks",
    "Link",
    "alignment_error_rate",
    "alignment_interval",
    "naacl",
    "pharaoh",
    "read_hypotheses",
    "read_links",
    "symmetrise",
    "talp",
]


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rate, precision and recall of a corpus, as fractions, and the number of links proposed."""

    aer: float
    precision: float
    recall: float
    links: int

    def __str__(self) -> str:
        percent = f"AER {100 * self.aer:.2f}  precision {100 * self.precision:.2f}  recall {100 * self.recall:.2f}"
        return f"{percent}  links {self.links}"


@dataclass(frozen=True)
class AlignmentCounts:
    """The four counts that AER, precision and recall are made of; counts of several sentences add up."""

    links: int = 0  # |A|
    sure: int = 0  # |S|
    links_in_sure: int = 0  # |A ∩ S|
    links_in_possible: int = 0  # |A ∩ P|

    @classmethod
    def of(cls, hypothesis: frozenset[Link], gold: GoldLinks) -> "AlignmentCounts":
        """The counts of one sentence pair."""
        return cls(len(hypothesis), len(gold.sure), len(hypothesis & gold.sure), len(hypothesis & gold.possible))

    def __add__(self, other: "AlignmentCounts") -> "AlignmentCounts":
        return AlignmentCounts(
            self.links + other.links,
            self.sure + other.sure,
            self.links_in_sure + other.links_in_sure,
            self.links_in_possible + other.links_in_possible,
        )

    def score(self) -> AlignmentScore:
        """The equations of `alignment_error_rate`; a share of nothing is 1, so that nothing asked, nothing missed."""
        asked = self.links + self.sure
        return AlignmentScore(
            aer=1 - (self.links_in_sure + self.links_in_possible) / asked if asked else 0.0,
            precision=self.links_in_possible / self.links if self.links else 1.0,
            recall=self.links_in_sure / self.sure if self.sure else 1.0,
            links=self.links,
        )


def alignment_interval(
    hypotheses: Iterable[frozenset[Link]], gold: Iterable[GoldLinks], resamples: int = 1000, seed: int = 1
) -> tuple[float, float]:
    """The 95 % confidence interval of the AER, by bootstrap over sentences.

    Sentences are drawn with replacement, as many as there are, and the AER of the draw is that of the summed counts;
    the interval lies between the 2.5th and the 97.5th percentile of `resamples` draws.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; wanted at least 1")
    counts = [AlignmentCounts.of(links, answer) for links, answer in zip(hypotheses, gold, strict=True)]
    random = Random(seed)
    rates = []
    for _ in range(resamples):
        links = sure = found = 0
        for one in random.choices(counts, k=len(counts)):
            links += one.links
            sure += one.sure
            found += one.links_in_sure + one.links_in_possible
        rates.append(1 - found / (links + sure) if links + sure else 0.0)
    rates.sort()
    return percentile(rates, 0.025), percentile(rates, 0.975)


def percentile(ordered: list[float], share: float) -> float:
    """The value below which `share` of sorted values lie, between two of them in proportion."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def alignment_error_rate(hypotheses: Iterable[frozenset[Link]], gold: Iterable[GoldLinks]) -> AlignmentScore:
    """Corpus-level alignment error rate (Och and Ney, 2000) of proposed links A against sure S and possible P ⊇ S.

        AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|)     precision = |A∩P| / |A|     recall = |A∩S| / |S|

    Each count is summed over the sentences first.
    """
    total, number = AlignmentCounts(), 0
    for number, (links, answer) in enumerate(zip_longest(hypotheses, gold), start=1):
        if links is None or answer is None:
            missing = "hypothesis" if links is None else "gold links"
            raise ValueError(f"sentence {number} has no {missing}; both files must have the same number of sentences")
        total += AlignmentCounts.of(links, answer)
    if not number:
        raise ValueError("there is no sentence to judge the links of")
    return total.score()
