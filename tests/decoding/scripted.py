"""Scripted engines: random but fixed log-probabilities for every prefix of every sentence, or a step written out."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rela.decoding.beam import Hypothesis, SpecialTokens, length_penalty

PAD, BOS, EOS = 0, 1, 2
BANNED = (PAD, BOS)
SPECIAL = SpecialTokens(BOS, EOS, BANNED)

State = list[tuple[int, ...]]


class Script:
    """An engine whose step is a function, and whose state is the same in every row."""

    row_multiple = 1

    def __init__(self, step: Callable[[Tensor, Any], tuple[Tensor, Any]], first_state: Any = None) -> None:
        self.step, self.first_state = step, first_state

    def encode(self, sources: Sequence[Sequence[int]]) -> None:
        return None

    def start(self, encoded: None) -> Any:
        return self.first_state

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None) -> Any:
        return state


class Table:
    """An engine over log P(next | sentence, prefix), drawn from a seed; a source is the number of its sentence."""

    def __init__(self, seed: int, words: int, sharpness: float = 1.5, row_multiple: int = 1) -> None:
        self.seed, self.size, self.sharpness = seed, 3 + words, sharpness
        self.row_multiple = row_multiple
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

    def encode(self, sources: Sequence[Sequence[int]]) -> State:
        return [(number,) for (number,) in sources]

    def start(self, encoded: State) -> State:
        return encoded

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.rows.append(len(tokens))
        if len(tokens) > len(state):  # the first step: one prefix a sentence becomes one a row
            state = [prefix for prefix in state for _ in range(len(tokens) // len(state))]
        state = [(*prefix, token) for prefix, token in zip(state, tokens.tolist(), strict=True)]
        return torch.stack([self.log_probs(prefix) for prefix in state]), state

    def reorder(self, state: State, rows: Tensor, sentences: Tensor | None) -> State:
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
        alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        finished: list[Hypothesis] = []
        for length in range(max_length + 1):
            grown = [
                ((*tokens, token), total + float(self.log_probs((sentence, BOS, *tokens))[token]))
                for tokens, total in alive
                for token in range(2, self.size)
                if token == EOS or length < max_length
            ]
            grown = sorted(grown, key=lambda item: -item[1])[: 2 * beam if beam > 1 else 1]
            for tokens, total in grown:
                if tokens[-1] == EOS:
                    finished.append(Hypothesis(tokens[:-1], total, total / length_penalty(len(tokens), alpha)))
            alive = [item for item in grown if item[0][-1] != EOS][:beam]
        return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:beam]
