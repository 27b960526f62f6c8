"""Attention weights of given translations, by forced decoding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from rela.attention.multihead import MultiheadAttention
from rela.attention.reference import attention_weights
from rela.decoding.even_packing import IdPair, pack_evenly
from rela.decoding.windows import batches_by_length
from rela.model.transformer import Transformer
from rela.packing import Packing, allowed_pairs

BATCH_TOKENS = 16_384
"""Of the padded pairs of a batch."""


@torch.inference_mode()
def forced_attention(
    model: Transformer, device: torch.device, pairs: Sequence[IdPair], layer: int
) -> Iterator[tuple[list[int], Tensor]]:
    """The numbers of the pairs of each batch, and their cross attention weights [B, H, T, S] in one layer, padded.

    T and S count </s>. The decoder runs as far as that layer, and no further.
    """
    decoder = list(model.decoder)[: layer + 1]
    for batch in batches_by_length([max(len(source), len(target)) for source, target in pairs], BATCH_TOKENS):
        packed = pack_evenly([pairs[i] for i in batch], device)
        memory = model.encode(packed.source, packed.source_positions, packed.source_packing)
        x = model.target_embedding(packed.target_in, packed.target_positions)
        with observed([decoder[-1].cross]) as weights:
            for one in decoder:
                x = one(x, packed.target_packing, memory, packed.source_packing)
        yield batch, weights[0][: len(batch)]


@contextlib.contextmanager
def observed(attentions: list[MultiheadAttention]) -> Iterator[list[Tensor]]:
    """A list to which each packed forward of the attentions adds its weights [B, H, T, S], while this is open."""
    weights: list[Tensor] = []

    def observer_of(attention: MultiheadAttention) -> Callable[..., None]:
        def observe(q: Tensor, k: Tensor, queries: Packing, keys: Packing, causal: bool) -> None:
            dense_q, dense_k = queries.pad(q), keys.pad(k)
            allowed = allowed_pairs(queries, keys, causal)
            name, scale = attention.kind.weights, attention.head_dim**-0.5
            weights.append(attention_weights(dense_q, dense_k, name, scale, allowed, None, attention.threshold))

        return observe

    try:
        for attention in attentions:
            attention.observer = observer_of(attention)
        yield weights
    finally:
        for attention in attentions:
            attention.observer = None
