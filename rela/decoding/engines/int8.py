"""The engine for a CPU: a Transformer with linear maps in int8, attention and norms in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from rela.attention.masks import length_mask
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import LayerNorm, RMSNorm
from rela.attention.packed import attend_sentences
from rela.attention.weights import weights_of
from rela.decoding.engines.int8_linear import QuantisedLinear
from rela.decoding.engines.reference import ReferenceEngine
from rela.model.layers import DecoderLayer, EncoderLayer, FeedForward
from rela.model.padding import padded_keys
from rela.model.residual import Residual
from rela.model.transformer import Transformer
from rela.packing import Packing


@dataclass
class QuantisedState:
    """The decoder's state of B sentences with K beams each, after `position` tokens.

    Caches are never reordered. A key stays where the beam that computed it has written it, every beam of a sentence
    multiplies by the keys of all, and `ancestors` says which of them belong to its own prefix.
    """

    caches: list[Tensor]
    """One a layer: keys and values [2, B, H, capacity · K, D], the K beams of a position together."""
    memories: list[Tensor]
    """One a layer: cross keys and values [2, B, H, S, D]."""
    source_allowed: Tensor
    """[B, 1, 1, S], True where a source has a token."""
    ancestors: Tensor
    """[B · K, position]: the beam that computed each position of a row's prefix."""
    watched: int | None = None
    """The layer whose cross attention weights each step leaves in `cross_weights`, or None."""
    cross_weights: Tensor | None = None
    """[B, H, K, S]: those of the last step."""

    @property
    def sentences(self) -> int:
        return self.source_allowed.size(0)

    @property
    def position(self) -> int:
        return self.ancestors.size(1)

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Make row i what row `rows[i]` was; keep these `sentences` alone, unless None."""
        self.ancestors = self.ancestors.index_select(0, rows)
        if sentences is not None:
            self.caches = [cache.index_select(1, sentences) for cache in self.caches]
            self.memories = [memory.index_select(1, sentences) for memory in self.memories]
            self.source_allowed = self.source_allowed.index_select(0, sentences)


class Int8Engine(ReferenceEngine):
    """The same engine over a copy of the model in int8.

    Sums of integers are exact in any order, and what it does in float32 it does row by row: it needs no padding rows.
    """

    row_multiple = 1

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.model = QuantisedTransformer(model)


class QuantisedAttention:
    """One attention with prepared weights: 1/√D multiplied into W_q, the gain of an RMSNorm into W_o.

    1/RMS, one number a row, commutes with W_o, so that the norm rounds nothing.
    """

    def __init__(self, attention: MultiheadAttention, cross: bool) -> None:
        assert attention.in_proj_weight is not None
        assert attention.in_proj_bias is not None
        self.heads, self.size = attention.num_heads, attention.head_dim
        self.width = width = attention.embed_dim
        self.kind, self.threshold = attention.kind, attention.threshold
        self.weights = weights_of(self.kind.weights)
        weight, bias = attention.in_proj_weight.detach().clone(), attention.in_proj_bias.detach().clone()
        weight[:width] *= self.size**-0.5
        bias[:width] *= self.size**-0.5
        if cross:
            self.q = QuantisedLinear(weight[:width], bias[:width])
            self.kv = QuantisedLinear(weight[width:], bias[width:])
        else:
            self.qkv = QuantisedLinear(weight, bias)
        self.norm = attention.norm
        is_rms = isinstance(self.norm, RMSNorm) and not isinstance(self.norm, LayerNorm)
        self.rms_norm: RMSNorm | None = cast("RMSNorm", self.norm) if is_rms else None
        out = attention.out_proj
        weight = out.weight if self.rms_norm is None else out.weight * self.rms_norm.gain
        self.out = QuantisedLinear(weight, out.bias)

    def packed(self, x: Tensor, memory: Tensor | None, queries: Packing, keys: Packing, causal: bool = False) -> Tensor:
        """The output [N, C] for packed tokens [N, C], over themselves or over packed `memory`."""
        if memory is None:
            q, k, v = self.qkv(x).view(-1, 3, self.heads, self.size).unbind(1)
        else:
            q = self.q(x).view(-1, self.heads, self.size)
            k, v = self.kv(memory).view(-1, 2, self.heads, self.size).unbind(1)
        context = attend_sentences(
            q, k, v, queries, keys, kind=self.kind, causal=causal, scale=1.0, threshold=self.threshold
        )
        return self.finish(context.flatten(1))

    def remember(self, memory: Tensor, sources: Packing, longest: int) -> Tensor:
        """Cross keys and values [2, B, H, S, D] of packed encodings [M, C]."""
        both = sources.pad(self.kv(memory).view(-1, 2 * self.heads, self.size), longest)  # [B, 2H, S, D]
        return both.unflatten(1, (2, self.heads)).transpose(0, 1).contiguous()

    def step(self, x: Tensor, cache: Tensor, position: int, beams: int, allowed: Tensor | None) -> Tensor:
        """Self-attention of one more position: x [B · K, C], which is also written to the cache."""
        new = self.qkv(x).view(-1, beams, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)  # [3, B, H, K, D]
        end = (position + 1) * beams
        cache.narrow(3, end - beams, beams).copy_(new.narrow(0, 1, 2))
        return self.attend(new.select(0, 0), cache.narrow(3, 0, end), allowed)

    def cross_step(self, x: Tensor, memory: Tensor, beams: int, allowed: Tensor, kept: list[Tensor] | None) -> Tensor:
        """Cross attention of one position: x [B · K, C] to each sentence's keys; its weights are added to `kept`."""
        q = self.q(x).view(-1, beams, self.heads, self.size).transpose(1, 2)
        return self.attend(q, memory, allowed, kept)

    def attend(self, q: Tensor, kv: Tensor, allowed: Tensor | None, kept: list[Tensor] | None = None) -> Tensor:
        """q [B, H, K, D] over keys and values [2, B, H, S, D], to the output [B · K, C]."""
        batch, heads, beams, size = q.shape
        k, v = kv.view(2, batch * heads, -1, size).unbind(0)
        scores = torch.bmm(q.reshape(batch * heads, beams, size), k.mT).view(batch, heads, beams, -1)
        if isinstance(self.threshold, Tensor):
            scores = scores - self.threshold[:, None, None]
        elif self.threshold:
            scores = scores - self.threshold
        weights = self.weights(scores, allowed)
        if kept is not None:
            kept.append(weights)
        context = torch.bmm(weights.view(batch * heads, beams, -1), v).view(batch, heads, beams, size)
        return self.finish(context.transpose(1, 2).reshape(batch * beams, heads * size))

    def finish(self, z: Tensor) -> Tensor:
        """The output norm on the concatenated heads z [N, C], then W_o."""
        norm = self.rms_norm
        if norm is None:
            return self.out(z if self.norm is None else self.norm(z))
        inverse = (z.square().mean(1, keepdim=True) + norm.eps).rsqrt_()
        return self.out(z if norm.gate is None else torch.sigmoid(z * norm.gate).mul_(z), inverse)


class QuantisedFeedForward:
    """relu(x W₁) W₂."""

    def __init__(self, module: FeedForward) -> None:
        self.expand = QuantisedLinear(module.expand.weight, module.expand.bias)
        self.contract = QuantisedLinear(module.contract.weight, module.contract.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self.contract(self.expand(x).relu_())


class Sublayer:
    """x + f(x) with its layer norm, after the sum or on f's input: a Residual without dropout and module calls."""

    def __init__(self, residual: Residual) -> None:
        self.norm_first, norm = residual.norm_first, residual.norm
        self.weight, self.bias, self.shape, self.eps = norm.weight, norm.bias, norm.normalized_shape, norm.eps

    def before(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps) if self.norm_first else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        x = x + change
        return x if self.norm_first else torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class QuantisedLayer:
    """An encoder layer, or a decoder layer with its cross attention."""

    def __init__(self, layer: EncoderLayer | DecoderLayer) -> None:
        self.attention = QuantisedAttention(layer.attention, cross=False)
        self.attention_residual = Sublayer(layer.attention_residual)
        self.cross: QuantisedAttention | None = None
        if isinstance(layer, DecoderLayer):
            self.cross, self.cross_residual = (
                QuantisedAttention(layer.cross, cross=True),
                Sublayer(layer.cross_residual),
            )
        self.feed_forward = QuantisedFeedForward(layer.feed_forward)
        self.feed_forward_residual = Sublayer(layer.feed_forward_residual)

    def packed(self, x: Tensor, own: Packing, memory: Tensor | None = None, sources: Packing | None = None) -> Tensor:
        """All positions of packed sentences at once; causal where there is a memory, which only decoders have."""
        y = self.attention_residual.before(x)
        x = self.attention_residual.after(x, self.attention.packed(y, None, own, own, causal=memory is not None))
        if self.cross is not None and sources is not None:
            change = self.cross.packed(self.cross_residual.before(x), memory, own, sources)
            x = self.cross_residual.after(x, change)
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))

    def step(self, x: Tensor, state: QuantisedState, number: int, beams: int, allowed: Tensor | None) -> Tensor:
        """One more position of every row, x [B · K, C]; this is layer `number`."""
        assert self.cross is not None
        y = self.attention_residual.before(x)
        change = self.attention.step(y, state.caches[number], state.position, beams, allowed)
        x = self.attention_residual.after(x, change)
        y = self.cross_residual.before(x)
        kept: list[Tensor] | None = [] if number == state.watched else None
        change = self.cross.cross_step(y, state.memories[number], beams, state.source_allowed, kept)
        if kept:
            (state.cross_weights,) = kept
        x = self.cross_residual.after(x, change)
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))


class QuantisedTransformer:
    """What a Transformer does in translating and scoring, with its linear maps in int8, rounded when it is made."""

    def __init__(self, model: Transformer) -> None:
        model.eval()
        self.config = model.config
        self.source_embedding, self.target_embedding = model.source_embedding, model.target_embedding
        self.encoder = [QuantisedLayer(layer) for layer in model.encoder]
        self.decoder = [QuantisedLayer(layer) for layer in model.decoder]
        self.encoder_norm: nn.Module = model.encoder_norm
        self.decoder_norm: nn.Module = model.decoder_norm
        self.logits = QuantisedLinear(model.output.weight)

    def encode(self, source: Tensor, positions: Tensor, sources: Packing) -> Tensor:
        """Packed source tokens [M] to their encoding [M, C]."""
        x = self.source_embedding(source, positions)
        for layer in self.encoder:
            x = layer.packed(x, sources)
        return self.encoder_norm(x)

    def __call__(
        self,
        source: Tensor,
        source_positions: Tensor,
        sources: Packing,
        target: Tensor,
        target_positions: Tensor,
        targets: Packing,
    ) -> Tensor:
        """Hidden states [N, C] of the decoder, teacher-forced."""
        memory = self.encode(source, source_positions, sources)
        x = self.target_embedding(target, target_positions)
        for layer in self.decoder:
            x = layer.packed(x, targets, memory, sources)
        return self.decoder_norm(x)

    def start(self, memory: Tensor, sources: Packing) -> QuantisedState:
        """The state before the first decoder step."""
        longest = padded_keys(sources.max_seqlen, self.config.width // self.config.heads)
        memories = [layer.cross.remember(memory, sources, longest) for layer in self.decoder if layer.cross]
        no_ancestors = torch.zeros(0, 0, dtype=torch.long)
        return QuantisedState([], memories, length_mask(sources.lengths, longest), no_ancestors)

    def decode_step(self, tokens: Tensor, state: QuantisedState) -> tuple[Tensor, QuantisedState]:
        """The next token of every row [R] to log-probabilities of the one after it [R, V]; the state moves on."""
        beams, position = tokens.numel() // state.sentences, state.position
        self.grow_caches(state, beams)
        each = torch.arange(beams)
        past = state.ancestors if position else tokens.new_zeros(tokens.numel(), 0)
        ancestors = torch.cat([past, each.repeat(state.sentences)[:, None]], 1)
        allowed = None
        if beams > 1:
            own = ancestors.view(-1, 1, beams, position + 1, 1) == each
            allowed = own.view(-1, 1, beams, (position + 1) * beams)
        x = self.target_embedding(tokens, torch.full_like(tokens, position))
        for number, layer in enumerate(self.decoder):
            x = layer.step(x, state, number, beams, allowed)
        state.ancestors = ancestors
        logits = self.logits(self.decoder_norm(x))
        return torch._log_softmax(logits, 1, False, out=logits), state  # in place: they are the largest tensor of all

    def grow_caches(self, state: QuantisedState, beams: int) -> None:
        """Make every cache hold one more position; its capacity doubles, so n steps copy O(n) positions."""
        heads, size = self.config.heads, self.config.width // self.config.heads
        old_size = state.caches[0].size(3) if state.caches else 0
        if (state.position + 1) * beams <= old_size:
            return
        new_size = max(2 * old_size, 32 * beams)
        caches = [torch.empty(2, state.sentences, heads, new_size, size) for _ in self.decoder]
        for new, old in zip(caches, state.caches, strict=False):
            new[:, :, :, :old_size] = old
        state.caches = caches
