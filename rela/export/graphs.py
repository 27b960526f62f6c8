"""The two graphs that an export consists of: the encoder, and one step of the decoder with its cache.

Both are the Transformer's own layers over padded sentences. Attention is the reference, so that a graph holds plain
operators alone. Letters are those of `rela.attention`: T decoded positions, S source positions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.attention import reference
from rela.attention.masks import length_mask
from rela.attention.multihead import MultiheadAttention
from rela.model.residual import Residual
from rela.model.transformer import Transformer


class EncoderGraph(nn.Module):
    """Padded sources to what every decoder step reads of them."""

    inputs = ("source", "lengths")
    outputs = ("memory_keys", "memory_values")

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Cross keys and values [L, B, H, S, D] of sources [B, S] that end with </s> and have `lengths` [B]."""
        model = self.model
        allowed = length_mask(lengths, source.size(1))
        x = model.source_embedding(source, torch.arange(source.size(1), device=source.device).expand_as(source))
        for layer in model.encoder:

            def attend(y: Tensor, attention: MultiheadAttention = layer.attention) -> Tensor:
                return attend_to(attention, y, *keys_and_values(attention, y), allowed)

            x = sublayer(layer.attention_residual, attend, x)
            x = sublayer(layer.feed_forward_residual, layer.feed_forward, x)
        memory = model.encoder_norm(x)
        pairs = [keys_and_values(layer.cross, memory) for layer in model.decoder]
        return stack([keys for keys, _ in pairs]), stack([values for _, values in pairs])


class DecoderStepGraph(nn.Module):
    """One more token of every sentence; the cache comes back one position longer."""

    inputs = ("token", "cache_keys", "cache_values", "memory_keys", "memory_values", "lengths")
    outputs = ("log_probs", "new_cache_keys", "new_cache_values")

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        token: Tensor,
        cache_keys: Tensor,
        cache_values: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        lengths: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities [B, V] after the last token [B], and the cache [L, B, H, T + 1, D] with its position.

        The cache is [L, B, H, T, D], at the first step (<s>) with T = 0; memory is the encoder's [L, B, H, S, D].
        """
        model = self.model
        allowed = length_mask(lengths, memory_keys.size(3))
        # The position is the number of tokens before this one.
        position = torch.full_like(token, 1) * cache_keys.size(3)
        x = model.target_embedding(token, position)[:, None]  # [B, 1, C]
        new_keys, new_values = [], []
        for number, layer in enumerate(model.decoder):

            def attend(y: Tensor, number: int = number, attention: MultiheadAttention = layer.attention) -> Tensor:
                keys, values = keys_and_values(attention, y)
                new_keys.append(torch.cat([cache_keys[number], keys], 2))
                new_values.append(torch.cat([cache_values[number], values], 2))
                return attend_to(attention, y, new_keys[-1], new_values[-1], None)

            def attend_source(y: Tensor, number: int = number, cross: MultiheadAttention = layer.cross) -> Tensor:
                return attend_to(cross, y, memory_keys[number], memory_values[number], allowed)

            x = sublayer(layer.attention_residual, attend, x)
            x = sublayer(layer.cross_residual, attend_source, x)
            x = sublayer(layer.feed_forward_residual, layer.feed_forward, x)
        log_probs = F.log_softmax(model.logits(model.decoder_norm(x[:, 0])).float(), dim=-1)
        return log_probs, stack(new_keys), stack(new_values)


def stack(layers: list[Tensor]) -> Tensor:
    """The layers as one tensor with the usual strides, which AOTInductor's code takes for granted in its inputs.

    Of a single layer it would otherwise hand on a view, and the next graph would read it wrongly.
    """
    return torch.stack(layers).clone(memory_format=torch.contiguous_format)


def sublayer(residual: Residual, change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """x after one sublayer, with its residual sum and norm."""
    return residual.after(x, change(residual.before(x)))


def keys_and_values(attention: MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Projected keys and values [B, H, S, D] of x [B, S, C]."""
    _, weight_k, weight_v = attention.projection_weights()
    _, bias_k, bias_v = attention.bias_parts()
    keys, values = F.linear(x, weight_k, bias_k), F.linear(x, weight_v, bias_v)
    return attention.split(keys, attention.num_kv_heads), attention.split(values, attention.num_kv_heads)


def attend_to(attention: MultiheadAttention, x: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None) -> Tensor:
    """The output [B, T, C] of attention of x [B, T, C] to projected keys and values [B, H, S, D]."""
    q = attention.split(F.linear(x, attention.projection_weights()[0], attention.bias_parts()[0]), attention.num_heads)
    scale = attention.head_dim**-0.5
    context, _ = reference.attend(
        q, keys, values, attention.kind.weights, scale, allowed, None, attention.threshold, 0.0
    )
    return attention.finish(context.transpose(1, 2).flatten(2), q.dtype)
