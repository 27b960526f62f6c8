"""Reranking: the n best translations ordered again by how well a model of the other direction gets the source back."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rela.decoding.beam import length_penalty

if TYPE_CHECKING:
    from rela.decoding.translate import Translation, Translator


class Reranker:
    """Gives each translation the score (1 - w) · forward + w · reverse, best first.

    `forward` is the translation's own score, `reverse` the log-probability of the source given the translation, by a
    model of the other direction; each is divided by its length penalty.
    """

    def __init__(self, reverse: Translator, weight: float = 0.5) -> None:
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"the weight of the reverse model is {weight}; wanted 0 to 1")
        self.reverse, self.weight = reverse, weight

    def rerank(
        self, sources: Sequence[str], groups: Sequence[list[Translation]], alpha: float
    ) -> list[list[Translation]]:
        """The translations of each source with their new scores, best first.

        A pair that is too long for the reverse model leaves its line as it is, with a warning.
        """
        from rela.decoding.translate import PairTooLong

        pairs: list[tuple[str, str]] = []
        short = []
        for source, group in zip(sources, groups, strict=True):
            try:
                for item in group:
                    self.reverse.encode_pair(item.text, source)
                short.append(True)
                pairs += [(item.text, source) for item in group]
            except PairTooLong as error:
                short.append(False)
                warnings.warn(f"not reranked: {error}", stacklevel=2)
        scored = iter(self.reverse.score(*map(list, zip(*pairs, strict=True))) if pairs else [])
        reranked = []
        for group, is_short in zip(groups, short, strict=True):
            if is_short:
                new = []
                for item, reverse in zip(group, scored, strict=False):
                    score = reverse.log_prob / length_penalty(len(reverse.pieces), alpha)
                    new.append(dataclasses.replace(item, score=(1 - self.weight) * item.score + self.weight * score))
                reranked.append(sorted(new, key=lambda item: -item.score))
            else:
                reranked.append(list(group))
        return reranked
