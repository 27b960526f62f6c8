"""A scripted model: random but fixed log-probabilities for every prefix of every sentence, with a state to reorder."""

from __future__ import annotations

import itertools
import math
import zlib

import torch
from torch import Tensor

from rela.decoding.beam import Hypothesis, length_penalty

PAD, BOS, EOS = 0, 1, 2
BANNED = (PAD, BOS)


class Table:
    """log P(next | sentence, prefix), drawn from a seed; `step` and `reorder` are what search wants of a model."""

    def __init__(self, seed: int, words: int, sharpness: float = 1.5) -> None:
        self.seed, self.size, self.sharpness = seed, 3 + words, sharpness
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.rows: list[int] = []
        """How many rows each step was asked for."""

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        if prefix not in self.known:
            generator = torch.Generator().manual_seed(zlib.crc32(repr((self.seed, prefix)).encode()))
            scores = self.sharpness * torch.randn(self.size, generator=generator)
            scores[list(BANNED)] = -math.inf  # so that banning them takes no probability away
            self.known[prefix] = scores.log_softmax(-1)
        return self.known[prefix]

    def start(self, sentences: int, beam: int) -> list[tuple[int, ...]]:
        return [(sentence,) for sentence in range(sentences) for _ in range(beam)]

    def step(self, tokens: Tensor, state: list[tuple[int, ...]]) -> tuple[Tensor, list[tuple[int, ...]]]:
        self.rows.append(len(state))
        state = [(*prefix, token) for prefix, token in zip(state, tokens.tolist(), strict=True)]
        return torch.stack([self.log_probs(prefix) for prefix in state]), state

    @staticmethod
    def reorder(state: list[tuple[int, ...]], rows: Tensor, sentences: Tensor | None) -> list[tuple[int, ...]]:
        return [state[row] for row in rows.tolist()]

    def log_prob(self, sentence: int, tokens: tuple[int, ...]) -> float:
        """Of the whole translation, </s> included."""
        path = (*tokens, EOS)
        return sum(float(self.log_probs((sentence, BOS, *path[:i]))[path[i]]) for i in range(len(path)))

    def exhaustive(self, sentence: int, max_length: int, alpha: float) -> list[Hypothesis]:
        """Every translation of at most `max_length` words, best first."""
        found = []
        for length in range(max_length + 1):
            for tokens in itertools.product(range(3, self.size), repeat=length):
                log_prob = self.log_prob(sentence, tokens)
                found.append(Hypothesis(tokens, log_prob, log_prob / length_penalty(length + 1, alpha)))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def plain_beam(self, sentence: int, max_length: int, beam: int, alpha: float) -> list[Hypothesis]:
        """Beam search with lists, one sentence, never stopping before the longest length."""
        living: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        finished: list[Hypothesis] = []
        for length in range(max_length + 1):
            grown = [
                ((*tokens, token), total + float(self.log_probs((sentence, BOS, *tokens))[token]))
                for tokens, total in living
                for token in range(2, self.size)
                if token == EOS or length < max_length
            ]
            grown = sorted(grown, key=lambda item: -item[1])[: 2 * beam if beam > 1 else 1]
            for tokens, total in grown:
                if tokens[-1] == EOS:
                    finished.append(Hypothesis(tokens[:-1], total, total / length_penalty(len(tokens), alpha)))
            living = [item for item in grown if item[0][-1] != EOS][:beam]
        return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:beam]
