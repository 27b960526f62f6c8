"""The reference engine: the Transformer as rela.model writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rela.decoding.even_packing import ROW_MULTIPLE, IdPair, pack_evenly
from rela.model.transformer import Transformer
from rela.packing import Packing


class ReferenceEngine:
    """An `Engine` over a Transformer, which can also score given translations."""

    row_multiple = ROW_MULTIPLE

    def __init__(self, model: Transformer) -> None:
        self.model: Any = model  # or what has its methods: see Int8Engine
        self.device = device_of(model)

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Packing]:
        """Encodings [M, C] of packed sources, and where each begins and ends."""
        batch = pack_evenly([(list(ids), []) for ids in sources], self.device)
        packing = batch.source_packing.map(lambda cu: cu[: len(sources) + 1])
        return self.model.encode(batch.source, batch.source_positions, packing), packing

    def start(self, encoded: tuple[Tensor, Packing]) -> Any:
        return self.model.start(*encoded)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.decode_step(tokens, state)

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None) -> Any:
        state.reorder(rows, sentences)
        return state

    def watch(self, state: Any, layer: int) -> None:
        """From now on, keep the cross attention weights of this layer after each step, for `cross_weights`."""
        state.watched = layer

    def cross_weights(self, state: Any) -> Tensor:
        """[B, H, K, S]: the watched layer's weights in the last step."""
        assert state.cross_weights is not None
        return state.cross_weights

    def score(self, pairs: list[IdPair]) -> list[list[float]]:
        """Log-probabilities of each target's ids and </s>, given its source."""
        batch = pack_evenly(pairs, self.device)
        hidden = self.model(*batch.inputs)
        log_probs = torch.log_softmax(self.model.logits(hidden).float(), -1)
        chosen = log_probs.gather(-1, batch.target_out[:, None])[:, 0].cpu()
        bounds = batch.target_packing.cu_seqlens.tolist()
        return [chosen[bounds[i] : bounds[i + 1]].tolist() for i in range(len(pairs))]


def device_of(model: Transformer) -> torch.device:
    """Where a model is; asked of a buffer, since weights may be packed away (int8)."""
    return model.target_embedding.positions.device
