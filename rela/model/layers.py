"""Encoder and decoder layers over packed tokens [N, C], and the decoder's single step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.attention.cache import KVCache
from rela.attention.kinds import kind_of
from rela.attention.masks import length_mask
from rela.attention.multihead import MultiheadAttention
from rela.config import ModelConfig
from rela.device import triton_serves_half
from rela.model.residual import Residual
from rela.packing import Packing


class FeedForward(nn.Module):
    """relu(x W₁) W₂."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in (self.expand, self.contract):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.rectified(x))

    def rectified(self, x: Tensor) -> Tensor:
        """relu(x W₁), fused on packed tokens in half precision: what training has."""
        if x.dim() == 2 and triton_serves_half(x) and not self.expand._forward_pre_hooks:
            from rela.kernels.layers.linear_relu import linear_relu

            return linear_relu(x, self.expand.weight.to(x.dtype), self.expand.bias.to(x.dtype))
        return F.relu(self.expand(x))


def make_attention(config: ModelConfig, kind: str, gain: float) -> MultiheadAttention:
    """One attention of the model; Xavier throughout, q, k and v as one matrix, so each at gain 1/√2.

    W_q and W_k are then multiplied by `gain`.
    """
    options = {"dropout": config.attention_dropout, "batch_first": True, **threshold_options(config, kind)}
    attention = MultiheadAttention(config.width, config.heads, kind=kind, **options)
    nn.init.xavier_uniform_(attention.out_proj.weight)
    scale_queries_and_keys(attention, gain)
    return attention


@torch.no_grad()
def scale_queries_and_keys(attention: MultiheadAttention, gain: float) -> None:
    """Multiply W_q and W_k of an attention that has just been initialised."""
    attention.in_proj_weight[: 2 * attention.embed_dim] *= gain  # rows: W_q, W_k, W_v


def threshold_options(config: ModelConfig, kind: str) -> dict[str, Any]:
    """The threshold settings, for the attentions whose weights know a threshold."""
    if kind_of(kind).is_distribution:
        return {}
    return {"threshold": config.threshold, "target_sparsity": config.target_sparsity}


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = make_attention(config, config.encoder_attention, config.query_key_gains.encoder)
        self.attention_residual = Residual(config.width, config.dropout, config.norm_first)
        self.feed_forward = FeedForward(config.width, config.feed_forward)
        self.feed_forward_residual = Residual(config.width, config.dropout, config.norm_first)

    def forward(self, x: Tensor, sentences: Packing) -> Tensor:
        y = self.attention_residual.before(x)
        x = self.attention_residual.after(x, self.attention.forward_sentences(y, y, sentences, sentences))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross attention to the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = make_attention(config, config.decoder_attention, config.query_key_gains.decoder)
        self.attention_residual = Residual(config.width, config.dropout, config.norm_first)
        self.cross = make_attention(config, config.cross_attention, config.query_key_gains.cross)
        self.cross_residual = Residual(config.width, config.dropout, config.norm_first)
        self.feed_forward = FeedForward(config.width, config.feed_forward)
        self.feed_forward_residual = Residual(config.width, config.dropout, config.norm_first)

    def forward(self, x: Tensor, sentences: Packing, memory: Tensor, sources: Packing) -> Tensor:
        """All target positions at once; memory [M, C] is packed by `sources`."""
        y = self.attention_residual.before(x)
        seen = self.attention.forward_sentences(y, y, sentences, sentences, causal=True)
        x = self.attention_residual.after(x, seen)
        y = self.cross_residual.before(x)
        x = self.cross_residual.after(x, self.cross.forward_sentences(y, memory, sentences, sources))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))

    def step(
        self,
        x: Tensor,
        cache: KVCache,
        memory: KVCache,
        source_lengths: Tensor,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """One more position of every row: x [R, C], the rows' cache, and the sentences' cross keys and values.

        Rows are the beams of a sentence one after another, so the R rows are R / B queries to each sentence's keys.
        The weights [B, H, R / B, S] of the cross attention are added to `cross_weights`, if that is given.
        """
        y = self.attention_residual.before(x)[:, None]
        x = self.attention_residual.after(x, self.attention(y, y, y, need_weights=False, cache=cache)[0][:, 0])
        y = self.cross_residual.before(x)
        hidden = ~length_mask(source_lengths, len(memory))[:, 0, 0]  # nn.MultiheadAttention's sense
        queries = y.view(len(source_lengths), -1, y.size(-1))
        wanted = cross_weights is not None
        seen, weights = self.cross(
            queries, key_padding_mask=hidden, need_weights=wanted, average_attn_weights=False, cache=memory
        )
        if cross_weights is not None and weights is not None:
            cross_weights.append(weights)
        x = self.cross_residual.after(x, seen.reshape(y.shape))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))
