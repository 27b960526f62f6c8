"""The text models are measured on: sentence pairs, their gold links, and noisy versions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rela.evaluation.alignment import GoldLinks
from rela.filtering.noise import NOISES, Pair, make_noise, shuffled_targets


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs, with everything that is measured beside them."""

    pairs: Sequence[Pair]
    gold: Sequence[GoldLinks] | None = None
    """Word links of `pairs`, or of `gold_pairs` where these are given."""
    gold_pairs: Sequence[Pair] | None = None
    """The text the gold links belong to, if it is another than `pairs`."""
    tokenised: bool = False
    """The pairs are tokenised, and the models know raw text."""
    gold_tokenised: bool = False
    """The same of the text that the gold links belong to."""
    noise: Mapping[str, Sequence[Pair]] | None = None
    """Noisy versions of the pairs by kind; None stands for the four kinds of `rela.filtering.noise`."""
    seed: int = 1
    """Of the noise and of the choice of examples."""
    lines: Sequence[int] | None = None
    """The number of each pair in its files, from 0; None if no pair is left out."""

    def __post_init__(self) -> None:
        if self.gold is not None and len(self.gold) != len(self.aligned):
            raise ValueError(
                f"gold links of {len(self.gold)} sentences for {len(self.aligned)} pairs; wanted equally many"
            )
        if len(self.numbers) != len(self.pairs):
            raise ValueError(f"{len(self.numbers)} line numbers for {len(self.pairs)} pairs; wanted equally many")
        given = (self.noise or {}).get("shuffled")
        if given is not None and len(given) != len(self.pairs):
            raise ValueError(f"{len(given)} shuffled pairs for {len(self.pairs)} pairs; wanted equally many")

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each pair in its files, from 0."""
        return range(len(self.pairs)) if self.lines is None else self.lines

    @property
    def aligned(self) -> Sequence[Pair]:
        """The pairs that the gold links belong to."""
        return self.pairs if self.gold_pairs is None else self.gold_pairs

    @property
    def gold_of_pairs(self) -> Sequence[GoldLinks] | None:
        """The gold links, where they belong to `pairs` themselves."""
        return self.gold if self.gold_pairs is None else None

    @cached_property
    def shuffled(self) -> Sequence[Pair]:
        """The paper's hallucinated set: every source with another pair's target; the one set of every figure."""
        given = (self.noise or {}).get("shuffled")
        return shuffled_targets(self.pairs, self.seed) if given is None else given

    @cached_property
    def noisy(self) -> dict[str, Sequence[Pair]]:
        """Noisy pairs by kind, the shuffled ones first."""
        others = self.noise
        if others is None:
            others = {kind: make_noise(self.pairs, kind, self.seed) for kind in NOISES if kind != "shuffled"}
        return {"shuffled": self.shuffled, **{kind: pairs for kind, pairs in others.items() if kind != "shuffled"}}
