"""The Transformer as a GPU wants it for decoding: weights cast and folded once, a step as few kernels as possible.

What is folded: the gain of an output norm into W_o, the keys and values of every layer's cross attention into one product.
What a step computes is what rela.model.layers says; tests hold the two together.

Legend: R rows, M packed source tokens, C width, H heads, F feed-forward size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rela.attention.multihead import MultiheadAttention
from rela.device import triton_is_installed
from rela.model.layers import FeedForward, Residual
from rela.model.transformer import Transformer

if TYPE_CHECKING:
    from rela.kernels.search.beam_step import Hypotheses
    from rela.kernels.search.step_layers import Change, Norm

NORMS = ("none", "rms", "rms-i", "gated-rms")
# Up to so many rows all kernels of a step are ours, and each starts early; beyond it cuBLAS is faster.
CHAIN_ROWS = 256
# Up to so many of them a norm and the product behind it are one kernel.
THIN_ROWS = 4
# Inner sizes of thin products are split into parts of this size, summed by whoever reads them.
PART = 512
# Queries of one program of the encoder's attention.
ENCODER_QUERIES = 32


def why_not_fast(model: Transformer) -> str | None:
    """The first reason why `Network` cannot stand for a model, or None if it can."""
    from rela.kernels.attention.activations import ACTIVATIONS
    from rela.kernels.attention.problem import LARGEST_HEAD

    if not triton_is_installed():
        return "Triton is not installed"
    known = ("softmax", *ACTIVATIONS)
    for attention in attentions(model):
        kind = attention.kind
        if kind.weights not in known:
            return f"{kind.weights} weights have no decoding kernel; there is one for {', '.join(known)}"
        if kind.norm not in NORMS:
            return f"the norm {kind.norm} is not part of a decoding kernel; {', '.join(NORMS)} are"
        if attention.head_dim > LARGEST_HEAD:
            return f"decoding kernels take head sizes up to {LARGEST_HEAD}, and the model has {attention.head_dim}"
    return None


def attentions(model: Transformer) -> list[MultiheadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiheadAttention)]


@dataclass(frozen=True)
class Attention:
    """One attention's weights; q, k and v are one product."""

    qkv: Tensor
    """[3C, C]."""
    qkv_bias: Tensor
    out: Tensor
    """[C, C], with the norm's gain in it."""
    out_bias: Tensor
    gate: Tensor | None
    threshold: Tensor | None
    normed: bool
    """Whether 1/RMS of the merged heads scales what comes out."""
    epsilon: float
    activation: str


@dataclass(frozen=True)
class Layer:
    """An encoder layer, or a decoder layer with its cross attention."""

    attention: Attention
    cross: Attention | None
    expand: Tensor
    expand_bias: Tensor
    contract: Tensor
    contract_bias: Tensor


class Network:
    """Encoder and decoder step of a Transformer, in bfloat16 or float32."""

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        if reason := why_not_fast(model):
            raise ValueError(f"fast decoding cannot serve this model: {reason}")
        self.config, self.dtype = model.config, dtype
        self.device = model.output.weight.device
        self.heads = model.config.heads
        # float32 products in three TF32 parts do not fit into the registers of a program
        self.chain_rows, self.thin_rows = (CHAIN_ROWS, THIN_ROWS) if dtype == torch.bfloat16 else (0, 0)
        self.encoder = [self.layer(layer) for layer in model.encoder]
        self.decoder = [self.layer(layer) for layer in model.decoder]
        self.encoder_norms = self.norms([(x.attention_residual, x.feed_forward_residual) for x in model.encoder],
                                        model.encoder_norm)  # fmt: skip
        self.decoder_norms = self.norms(
            [(x.attention_residual, x.cross_residual, x.feed_forward_residual) for x in model.decoder],
            model.decoder_norm,
        )
        # keys and values of all layers: [L · 2C, C]
        crosses = [layer.cross for layer in self.decoder if layer.cross is not None]
        width = model.config.width
        self.memory = torch.cat([cross.qkv[width:] for cross in crosses])
        self.memory_bias = torch.cat([cross.qkv_bias[width:] for cross in crosses])
        self.output = self.cast(model.output.weight)
        shared = {id(model.output.weight): self.output}
        tables = []
        for embedding in (model.source_embedding, model.target_embedding):
            weight = embedding.table.weight
            shared.setdefault(id(weight), self.cast(weight))
            tables.append(shared[id(weight)])
        self.source_table, self.target_table = tables
        self.positions = model.target_embedding.positions.float().contiguous()
        self.scale = model.target_embedding.scale

    def cast(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype).contiguous()

    def layer(self, layer: Any) -> Layer:
        feed_forward: FeedForward = layer.feed_forward
        return Layer(
            attention=self.attention(layer.attention), cross=self.attention(layer.cross) if hasattr(layer, "cross") else None,
            expand=self.cast(feed_forward.expand.weight), expand_bias=self.cast(feed_forward.expand.bias),
            contract=self.cast(feed_forward.contract.weight), contract_bias=feed_forward.contract.bias.detach().float(),
        )  # fmt: skip

    def attention(self, module: MultiheadAttention) -> Attention:
        norm: Any = module.norm
        out = module.out_proj.weight.detach().float()
        if norm is not None:
            out = out * norm.gain.detach().float()
        gate = None if norm is None or norm.gate is None else norm.gate.detach().float().contiguous()
        threshold = module.threshold
        if isinstance(threshold, float):
            theta = torch.full((self.heads,), threshold, device=self.device) if threshold else None
        else:
            theta = threshold.detach().float().contiguous()
        assert module.in_proj_weight is not None and module.in_proj_bias is not None
        return Attention(
            qkv=self.cast(module.in_proj_weight), qkv_bias=self.cast(module.in_proj_bias), out=self.cast(out),
            out_bias=module.out_proj.bias.detach().float(), gate=gate, threshold=theta, normed=norm is not None,
            epsilon=0.0 if norm is None else float(norm.eps), activation=module.kind.weights,
        )  # fmt: skip

    def norms(self, residuals: list[tuple[Residual, ...]], last: nn.Module) -> tuple[Norm | None, list[Norm]]:
        """The norm before the first sublayer (pre-norm), and that which follows each sublayer's sum."""
        from rela.kernels.search.step_layers import Norm

        def read(norm: nn.Module) -> Norm:
            assert isinstance(norm, nn.LayerNorm)
            return Norm(norm.weight.detach().float(), norm.bias.detach().float(), norm.eps, self.config.norm_first)

        own = [read(residual.norm) for layer in residuals for residual in layer]
        if not self.config.norm_first:
            return None, own
        return own[0], [*own[1:], read(last)]

    def encode(self, ids: Tensor, positions: Tensor, table: Tensor, blocks: int, memory: Tensor) -> None:
        """Packed tokens [M] to the keys and values of every layer's cross attention, memory [M, L · 2C].

        table [blocks, 4] lists the sentences' queries, at most ENCODER_QUERIES a block, and their keys.
        """
        first, norms = self.encoder_norms
        residual = self.source_table[ids].float() * self.scale + self.positions[positions]
        stream = Stream(residual, residual.to(self.dtype, copy=True))
        if first is not None:
            stream.norm_alone(first)
        for i, layer in enumerate(self.encoder):
            qkv = stream.project(layer.attention.qkv, layer.attention.qkv_bias)
            q, k, v = qkv.split(self.config.width, dim=1)
            change = self.attend_blocks(stream, layer.attention, q, k, v, table, blocks, ENCODER_QUERIES)
            stream.add(change, norms[2 * i])
            self.feed_forward(stream, layer, norms[2 * i + 1])
        stream.settle()
        torch.addmm(self.memory_bias, stream.x, self.memory.t(), out=memory)

    def feed_forward(self, stream: Stream, layer: Layer, norm: Norm) -> None:
        inner = stream.project(layer.expand, layer.expand_bias, relu=True)
        stream.add(stream.change(inner, layer.contract, layer.contract_bias), norm)

    def attend_blocks(
        self, stream: Stream, attention: Attention, q: Tensor, keys: Tensor, values: Tensor, table: Tensor, blocks: int,
        queries: int, in_chain: bool = False,
    ) -> Change:  # fmt: skip
        """What attention of each block's queries to its sentence's keys adds to the residual."""
        from rela.kernels.search import step_attention

        context, squares = self.new_context(q.size(0), attention)
        step_attention.attend_blocks(
            q, keys, values, table, attention.gate, attention.threshold, context, squares, blocks=blocks, queries=queries,
            heads=self.heads, activation=attention.activation, in_chain=in_chain,
        )  # fmt: skip
        return stream.change(context, attention.out, attention.out_bias, squares, attention.epsilon)

    def new_context(self, rows: int, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """Room for an attention's context [R, C] and, where a norm follows, its squares [R, H · G]."""
        from rela.kernels.search.step_attention import groups_of

        sums = self.heads * groups_of(self.config.width // self.heads)
        context = torch.empty(rows, self.config.width, dtype=self.dtype, device=self.device)
        squares = torch.empty(rows, sums, dtype=torch.float32, device=self.device) if attention.normed else None
        return context, squares

    def step(
        self, state: Hypotheses, places: Tensor, room: Tensor, cache: Tensor, memory: Tensor, table: Tensor, *,
        sentences: int, beam: int, in_chain: bool,
    ) -> Tensor:  # fmt: skip
        """The next position of the rows of the first `sentences` seats: hidden states [R, C].

        cache is [L, 2, slots, C], memory [M, L · 2C], table [seats, 4] as in `encode` with the sentences' rows as queries.
        """
        from rela.kernels.search import step_attention, step_layers

        width, rows = self.config.width, sentences * beam
        first, norms = self.decoder_norms
        residual = torch.empty(rows, width, dtype=torch.float32, device=self.device)
        x = torch.empty(rows, width, dtype=self.dtype, device=self.device)
        step_layers.embed(
            state.last, places, state.lengths, self.target_table, self.positions, self.scale, first, residual, x,
            beam=beam, in_chain=in_chain,
        )  # fmt: skip
        stream = Stream(residual, x, in_chain, thin=rows <= self.thin_rows)
        for i, layer in enumerate(self.decoder):
            attention, cross = layer.attention, layer.cross
            assert cross is not None
            qkv = stream.project(attention.qkv, attention.qkv_bias)
            context, squares = self.new_context(rows, attention)
            step_attention.attend_cache(
                qkv, cache[i, 0], cache[i, 1], state.heirs, places, state.lengths, state.done, room, attention.gate,
                attention.threshold, context, squares, beam=beam, heads=self.heads, activation=attention.activation,
                in_chain=in_chain,
            )  # fmt: skip
            change = stream.change(context, attention.out, attention.out_bias, squares, attention.epsilon)
            stream.add(change, norms[3 * i])
            q = stream.project(cross.qkv[:width], cross.qkv_bias[:width])
            keys, values = memory[:, 2 * i * width : 2 * (i + 1) * width].split(width, dim=1)
            change = self.attend_blocks(stream, cross, q, keys, values, table, sentences, beam, in_chain)
            stream.add(change, norms[3 * i + 1])
            self.feed_forward(stream, layer, norms[3 * i + 2])
        stream.settle()
        return stream.x


class Stream:
    """The residual of some rows, what the next product takes of it, and a change that waits to be added.

    In a chain all kernels are ours, and each starts early; where rows are few (`thin`), norms are part of products.
    """

    def __init__(self, residual: Tensor, x: Tensor, in_chain: bool = False, thin: bool = False) -> None:
        self.residual, self.x, self.in_chain, self.thin = residual, x, in_chain, thin
        self.pending: tuple[Change, Norm] | None = None

    def add(self, change: Change, norm: Norm) -> None:
        self.pending = change, norm

    def norm_alone(self, norm: Norm) -> None:
        from rela.kernels.search.step_layers import residual_norm

        residual_norm(self.residual, None, norm, self.residual, self.x)

    def settle(self) -> None:
        """Add what waits, so that x is up to date."""
        from rela.kernels.search.step_layers import residual_norm

        if self.pending is not None:
            residual_norm(self.residual, *self.pending, self.residual, self.x, in_chain=self.in_chain)
            self.pending = None

    def project(self, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
        """x · weightᵀ + bias, [R, N], after what waits has been added."""
        from rela.kernels.search.step_layers import norm_linear, thin_linear

        if not self.in_chain:
            self.settle()
            if relu and weight.is_cuda:
                return torch._addmm_activation(bias, self.x, weight.t())
            product = torch.addmm(bias, self.x, weight.t())
            return product.relu_() if relu else product
        out = torch.empty(self.x.size(0), weight.size(0), dtype=weight.dtype, device=weight.device)
        if self.thin and self.pending is not None:
            residual = torch.empty_like(self.residual)
            norm_linear(self.residual, *self.pending, residual, weight, bias, out, relu=relu, in_chain=True)
            self.residual, self.pending = residual, None
        else:
            self.settle()
            thin_linear(self.x, weight, bias, out, relu=relu, in_chain=True)
        return out

    def change(
        self, inputs: Tensor, weight: Tensor, bias: Tensor, squares: Tensor | None = None, epsilon: float = 0.0
    ) -> Change:
        """inputs · weightᵀ as a change, to which the bias and, unless the stream is thin, 1/RMS are still to come."""
        from rela.kernels.search.step_layers import Change, thin_linear

        if not self.in_chain:
            return Change(inputs @ weight.t(), bias, squares, epsilon)
        parts = max(1, weight.size(1) // PART)
        y = torch.empty(parts, inputs.size(0), weight.size(0), dtype=torch.float32, device=weight.device)
        if self.thin:
            thin_linear(inputs, weight, None, y, squares, epsilon, in_chain=True)
            return Change(y, bias)
        thin_linear(inputs, weight, None, y, in_chain=True)
        return Change(y, bias, squares, epsilon)
