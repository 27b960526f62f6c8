"""Subword regularisation: BPE-dropout (Provilkov et al., 2020) and sampling from a unigram model (Kudo, 2018).

A shard of ids is turned back into text and cut anew in each epoch, both sides. What an epoch sees is a function of the
seed, the epoch and the shard alone, so a run that is continued goes on with the same subwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rela.data.shards import Ids, Shard
from rela.data.subwords import UNK, Subwords

CHUNK = 4096
"""Sentences that are cut together; an even number, so that each chunk begins with a source."""


@dataclass(frozen=True)
class SubwordSampling:
    """How training text is cut into subwords at random: with which model, and how far from its best."""

    subwords: Subwords
    alpha: float
    """The probability with which BPE-dropout leaves out a merge, or the exponent of a unigram model's probabilities."""
    longest: int
    """Subwords that a sentence may have."""

    def sample(self, shard: Shard, seed: Sequence[int], limits: tuple[int, int]) -> Shard:
        """The pairs of a shard in other subwords, in the same order.

        A sentence stays as it was where it would be longer than `longest` or than `limits` (source, target), and where
        it has a character that the vocabulary lacks.
        """
        limits = min(limits[0], self.longest), min(limits[1], self.longest)
        lengths: list[int] = []
        parts: list[Ids] = []
        generator = np.random.default_rng([*seed, 2])
        for start in range(0, 2 * len(shard), CHUNK):
            runs = list(side_by_side(shard, start, min(start + CHUNK, 2 * len(shard))))
            cut = self.cut(runs, int(generator.integers(1 << 32)))
            kept = [
                new if UNK not in run and len(new) <= limits[number % 2] else run
                for number, (run, new) in enumerate(zip(runs, cut, strict=True))
            ]
            lengths += map(len, kept)
            parts.append(np.concatenate([np.asarray(sentence, shard.ids.dtype) for sentence in kept]))
        index = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Shard(np.concatenate(parts) if parts else shard.ids, index, shard.corpus)

    def cut(self, runs: Sequence[Ids], seed: int) -> list[list[int]]:
        """The ids of sentences, source and target in turn, in other subwords."""
        ids = [run.tolist() for run in runs]
        if self.subwords.is_joint:
            return self.subwords.sample_batch(self.subwords.decode_batch(ids), self.alpha, seed)
        for side, subwords in enumerate((self.subwords.source, self.subwords)):
            ids[side::2] = subwords.sample_batch(subwords.decode_batch(ids[side::2]), self.alpha, seed)
        return ids


def side_by_side(shard: Shard, first: int, last: int) -> Iterator[Ids]:
    """The sentences of a shard from `first` to `last`, source and target in turn."""
    for number in range(first, last):
        yield shard.ids[int(shard.index[number]) : int(shard.index[number + 1])]
