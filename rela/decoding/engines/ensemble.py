"""An ensemble: an engine over several models of one vocabulary; the next token has the mean of their probabilities."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rela.config import DecodeConfig
from rela.decoding.engines.choose import Engines
from rela.decoding.engines.reference import ReferenceEngine
from rela.decoding.even_packing import IdPair


class EnsembleEngine:
    """An `Engine`: log P(token) = log of the mean of the members' P(token)."""

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = list(members)
        self.row_multiple = math.lcm(*(member.row_multiple for member in members))

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Any]:
        return [member.encode(sources) for member in self.members]

    def start(self, encoded: list[Any]) -> list[Any]:
        return [member.start(part) for member, part in zip(self.members, encoded, strict=True)]

    def step(self, tokens: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        steps = [member.step(tokens, part) for member, part in zip(self.members, state, strict=True)]
        return mean_probability([log_probs for log_probs, _ in steps]), [part for _, part in steps]

    def reorder(self, state: list[Any], rows: Tensor, sentences: Tensor | None) -> list[Any]:
        return [member.reorder(part, rows, sentences) for member, part in zip(self.members, state, strict=True)]

    def watch(self, state: list[Any], layer: int) -> None:
        """Links are read from the first member."""
        self.members[0].watch(state[0], layer)

    def cross_weights(self, state: list[Any]) -> Tensor:
        return self.members[0].cross_weights(state[0])

    def score(self, pairs: list[IdPair]) -> list[list[float]]:
        """Log-probabilities of each target's ids and </s>, given its source."""
        by_member = [member.score(pairs) for member in self.members]
        return [
            mean_probability([torch.tensor(values, dtype=torch.float64) for values in scores]).tolist()
            for scores in zip(*by_member, strict=True)
        ]


def mean_probability(log_probs: list[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities that are given as logarithms."""
    return torch.logsumexp(torch.stack(log_probs), 0) - math.log(len(log_probs))


class EnsembleEngines:
    """The engines of an ensemble: what `Engines` is for one model."""

    def __init__(self, members: Sequence[Engines]) -> None:
        self.members = list(members)

    def gpu_engine(self, decode: DecodeConfig) -> None:
        """None: the GPU engine searches with one model; engine="graphs" is refused."""
        if decode.engine == "graphs":
            count = len(self.members)
            raise ValueError(f'engine is "graphs", which cannot serve here: it takes one model, and these are {count}')

    def uses_graphs(self, decode: DecodeConfig) -> bool:
        return False

    def stepwise_engine(self, decode: DecodeConfig) -> ReferenceEngine | EnsembleEngine:
        return EnsembleEngine([engines.stepwise_engine(decode) for engines in self.members])

    def autocast(self, decode: DecodeConfig) -> contextlib.AbstractContextManager:
        return self.members[0].autocast(decode)
