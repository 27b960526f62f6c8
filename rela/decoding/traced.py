"""An engine that keeps the cross attention of its steps, so that word links cost no second pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.decoding.beam import Hypothesis
from rela.decoding.engines.reference import ReferenceEngine


class TracedEngine:
    """An `Engine` over another one on a CPU, which keeps the weights of one layer and where each prefix was computed.

    Prefixes form a tree: a node is a prefix of one sentence, and knows the step and the row that computed what follows
    it. Search needs not know of it, and a hypothesis is found again by its tokens.
    """

    def __init__(self, engine: ReferenceEngine, layer: int) -> None:
        self.engine, self.layer = engine, layer
        self.row_multiple = engine.row_multiple
        self.lengths: list[int] = []
        """Of the sources, with </s>."""
        self.weights: list[NDArray[np.float32]] = []
        """One a step: [B, H, K, S]."""
        self.origins: list[tuple[int, int]] = []
        """Of each node, the step and the row; the first nodes are the empty prefixes of the sentences."""
        self.children: dict[tuple[int, int], int] = {}
        """The node that a node and a token lead to."""
        self.rows: list[int] = []
        """The node of each row."""

    def encode(self, sources: Sequence[Sequence[int]]) -> Any:
        self.lengths = [len(source) + 1 for source in sources]
        return self.engine.encode(sources)

    def start(self, encoded: Any) -> Any:
        state = self.engine.start(encoded)
        self.engine.watch(state, self.layer)
        return state

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """As the engine's; keeps the cross weights of the step and which hypothesis each row continues."""
        step = len(self.weights)
        if step == 0:
            beams = tokens.numel() // len(self.lengths)
            self.origins = [(0, sentence * beams) for sentence in range(len(self.lengths))]
            self.rows = [row // beams for row in range(tokens.numel())]
        else:
            self.rows = [
                self.child(node, token, (step, row))
                for row, (node, token) in enumerate(zip(self.rows, tokens.tolist(), strict=True))
            ]
        log_probs, state = self.engine.step(tokens, state)
        self.weights.append(self.engine.cross_weights(state).float().numpy())
        return log_probs, state

    def child(self, node: int, token: int, origin: tuple[int, int]) -> int:
        """The node that follows a node by a token, made where there is none."""
        found = self.children.setdefault((node, token), len(self.origins))
        if found == len(self.origins):
            self.origins.append(origin)
        return found

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None) -> Any:
        self.rows = [self.rows[row] for row in rows.tolist()]
        return self.engine.reorder(state, rows, sentences)

    def with_attention(self, sentence: int, hypothesis: Hypothesis) -> Hypothesis:
        """A hypothesis of a sentence with the weights [H, T, S] of the steps that gave its tokens and </s>."""
        node, steps = sentence, []
        for token in (*hypothesis.tokens, None):
            step, row = self.origins[node]
            weights = self.weights[step]
            beams = weights.shape[2]
            steps.append(weights[row // beams, :, row % beams, : self.lengths[sentence]])
            if token is not None:
                node = self.children[node, token]
        return dataclasses.replace(hypothesis, attention=torch.from_numpy(np.stack(steps, 1)))
