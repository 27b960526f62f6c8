"""Encoder and decoder layers over padded sentences [B, T, C], with the caches of `transformers`.

The parameters are those of `rela.model.layers`, whose own `forward` is for packed sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from rela.attention.cache import KVCache
from rela.model.layers import DecoderLayer, EncoderLayer


@dataclass(frozen=True)
class Hidden:
    """What queries may not look at, in the terms of `torch.nn.MultiheadAttention`."""

    keys: Tensor | None = None
    """bool [B, S], True for padding."""
    pairs: Tensor | None = None
    """bool [T, S], True for keys of a static cache that come later than the query."""
    causal: bool = False

    def arguments(self, weights: bool) -> dict[str, Any]:
        """The arguments of an attention's `forward`."""
        masks = {"key_padding_mask": self.keys, "attn_mask": self.pairs, "is_causal": self.causal}
        return {**masks, "need_weights": weights, "average_attn_weights": False}


class LayerCache(KVCache):
    """One layer of a cache of `transformers`, which our attention appends to."""

    def __init__(self, cache: Any, layer: int) -> None:
        super().__init__()
        self.cache, self.layer = cache, layer

    def append(self, keys: Tensor, values: Tensor, recorded: bool = False) -> None:
        self._keys, self._values = keys, values = self.cache.update(keys, values, self.layer)
        self.length = keys.size(2)  # all that there is room for, where it is static


class RelaEncoderLayer(GradientCheckpointingLayer, EncoderLayer):
    """Self-attention, then feed-forward: x [B, S, C] and, if asked for, the weights [B, H, S, S]."""

    def forward(self, x: Tensor, hidden: Hidden, weights: bool = False) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        y = self.attention_residual.before(x)
        seen, self_weights = self.attention(y, y, y, **hidden.arguments(weights))
        x = self.attention_residual.after(x, seen)
        return self.feed_forward_residual.after(
            x, self.feed_forward(self.feed_forward_residual.before(x))
        ), self_weights


class RelaDecoderLayer(GradientCheckpointingLayer, DecoderLayer):
    """Self-attention, cross attention, feed-forward: x [B, T, C] and the weights of both attentions."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        hidden: Hidden,
        hidden_source: Hidden,
        past: Any = None,
        layer: int = 0,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`past` is an EncoderDecoderCache, or None; `layer` is the number of this one in it."""
        y = self.attention_residual.before(x)
        cache = None if past is None else LayerCache(past.self_attention_cache, layer)
        seen, self_weights = self.attention(y, y, y, cache=cache, **hidden.arguments(weights))
        x = self.attention_residual.after(x, seen)
        y = self.cross_residual.before(x)
        if past is None:
            seen, cross_weights = self.cross(y, memory, memory, **hidden_source.arguments(weights))
        else:
            remembered = self.remember(memory, past, layer)
            seen, cross_weights = self.cross(y, cache=remembered, **hidden_source.arguments(weights))
        x = self.cross_residual.after(x, seen)
        x = self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))
        return x, self_weights, cross_weights

    def remember(self, memory: Tensor, past: Any, layer: int) -> KVCache:
        """The cross keys and values of all steps, projected at the first."""
        cache = past.cross_attention_cache
        if past.is_updated.get(layer):
            return KVCache(cache.layers[layer].keys, cache.layers[layer].values)
        projected = self.cross.remember(memory)
        past.is_updated[layer] = True
        return KVCache(*cache.update(projected.keys, projected.values, layer))
