"""The Transformer of the GPU engine: weights cast and folded once, a step as few kernels as possible.

The gain of an output norm is folded into W_o, and the cross keys and values of all layers are one product.
A step computes what rela.model.layers defines; tests compare the two. Letters as in engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rela.attention.multihead import MultiheadAttention
from rela.attention.reference import attention_weights
from rela.device import triton_is_installed
from rela.model.layers import FeedForward
from rela.model.residual import Residual
from rela.model.transformer import Transformer

if TYPE_CHECKING:
    from rela.decoding.engines.gpu_buffers import Buffers
    from rela.kernels.search.step_attention import BeamCache, Heads, KeptQueries
    from rela.kernels.search.step_layers import Norm, SublayerOutput

NORMS = ("none", "rms", "rms-i", "gated-rms")
# Up to so many rows all kernels of a step are ours, and each is launched early; beyond it cuBLAS is faster.
CHAIN_ROWS = 256
# Up to so many rows a norm and the product after it are one kernel.
THIN_ROWS = 4
# Products for few rows are split along their input features into parts of this size, which the next kernel sums.
PART = 512
# Queries of one program of the encoder's attention.
ENCODER_QUERIES = 32


def why_not_network(model: Transformer) -> str | None:
    """The first reason why `GpuNetwork` cannot compute a model, or None if it can."""
    if not triton_is_installed():
        return "Triton is not installed"
    from rela.kernels.attention.activations import ACTIVATIONS
    from rela.kernels.limits import LARGEST_HEAD

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
    heads: Heads
    has_norm: bool
    """Whether 1/RMS of the merged heads scales the output."""
    epsilon: float


@dataclass(frozen=True)
class Layer:
    """An encoder layer, or a decoder layer with its cross attention."""

    attention: Attention
    cross: Attention | None
    expand: Tensor
    expand_bias: Tensor
    contract: Tensor
    contract_bias: Tensor


class GpuNetwork:
    """Encoder and decoder step of a Transformer, in bfloat16 or float32."""

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        if reason := why_not_network(model):
            raise ValueError(f"fast decoding cannot serve this model: {reason}")
        self.config, self.dtype = model.config, dtype
        self.device = model.output.weight.device
        self.heads = model.config.heads
        # float32 products in three TF32 parts do not fit into the registers of a program
        self.chain_rows, self.thin_rows = (CHAIN_ROWS, THIN_ROWS) if dtype == torch.bfloat16 else (0, 0)
        self.encoder = [self.layer(layer) for layer in model.encoder]
        self.decoder = [self.layer(layer) for layer in model.decoder]
        self.encoder_norms = self.norms(
            [(x.attention_residual, x.feed_forward_residual) for x in model.encoder], model.encoder_norm
        )
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
        """The weights of an encoder or decoder layer, as the kernels of a step want them."""
        feed_forward: FeedForward = layer.feed_forward
        return Layer(
            attention=self.attention(layer.attention),
            cross=self.attention(layer.cross) if hasattr(layer, "cross") else None,
            expand=self.cast(feed_forward.expand.weight),
            expand_bias=self.cast(feed_forward.expand.bias),
            contract=self.cast(feed_forward.contract.weight),
            contract_bias=feed_forward.contract.bias.detach().float(),
        )

    def attention(self, module: MultiheadAttention) -> Attention:
        """The weights of one attention; the gain of its norm is multiplied into W_o."""
        from rela.kernels.search.step_attention import Heads

        norm: Any = module.norm
        out = module.out_proj.weight.detach().float()
        if norm is not None:
            out = out * norm.gain.detach().float()
        gate = None if norm is None or norm.gate is None else norm.gate.detach().float().contiguous()
        heads = Heads(self.heads, module.kind.weights, gate, self.threshold(module))
        assert module.in_proj_weight is not None and module.in_proj_bias is not None
        return Attention(
            qkv=self.cast(module.in_proj_weight),
            qkv_bias=self.cast(module.in_proj_bias),
            out=self.cast(out),
            out_bias=module.out_proj.bias.detach().float(),
            heads=heads,
            has_norm=norm is not None,
            epsilon=0.0 if norm is None else float(norm.eps),
        )

    def threshold(self, module: MultiheadAttention) -> Tensor | None:
        """The threshold of each head [H] in float32, or None where it is zero."""
        if not isinstance(module.threshold, float):
            return module.threshold.detach().float().contiguous()
        return torch.full((self.heads,), module.threshold, device=self.device) if module.threshold else None

    def norms(self, residuals: list[tuple[Residual, ...]], last: nn.Module) -> tuple[Norm | None, list[Norm]]:
        """The norm before the first sublayer (pre-norm only), and the norm after each sublayer's sum."""
        from rela.kernels.search.step_layers import Norm

        def read(norm: nn.Module) -> Norm:
            assert isinstance(norm, nn.LayerNorm)
            return Norm(norm.weight.detach().float(), norm.bias.detach().float(), norm.eps, self.config.norm_first)

        own = [read(residual.norm) for layer in residuals for residual in layer]
        if not self.config.norm_first:
            return None, own
        return own[0], [*own[1:], read(last)]

    def encode(self, ids: Tensor, positions: Tensor, table: Tensor, blocks: int, memory: Tensor) -> None:
        """Write the cross keys and values of every layer, memory [M, L · 2C], for packed tokens [M].

        table [blocks, 4] lists the sentences' queries, at most ENCODER_QUERIES a block, and their keys.
        """
        first, norms = self.encoder_norms
        residual = self.source_table[ids].float() * self.scale + self.positions[positions]
        stream = ResidualStream(residual, residual.to(self.dtype, copy=True))
        if first is not None:
            stream.norm_only(first)
        for i, layer in enumerate(self.encoder):
            qkv = stream.project(layer.attention.qkv, layer.attention.qkv_bias)
            q, k, v = qkv.split(self.config.width, dim=1)
            output = self.attend_blocks(stream, layer.attention, (q, k, v), Blocks(table, blocks, ENCODER_QUERIES))
            stream.add(output, norms[2 * i])
            self.feed_forward(stream, layer, norms[2 * i + 1])
        stream.add_pending()
        torch.addmm(self.memory_bias, stream.x, self.memory.t(), out=memory)

    def feed_forward(self, stream: ResidualStream, layer: Layer, norm: Norm) -> None:
        inner = stream.project(layer.expand, layer.expand_bias, relu=True)
        stream.add(stream.sublayer_output(inner, layer.contract, layer.contract_bias), norm)

    def attend_blocks(
        self,
        stream: ResidualStream,
        attention: Attention,
        qkv: tuple[Tensor, Tensor, Tensor],
        blocks: Blocks,
        kept: KeptQueries | None = None,
    ) -> SublayerOutput:
        """What attention of each block's queries to its sentence's keys adds to the residual."""
        from rela.kernels.search import step_attention

        context, squares = self.new_context(qkv[0].size(0), attention)
        step_attention.attend_blocks(
            *qkv,
            blocks.table,
            attention.heads,
            context,
            squares,
            blocks=blocks.count,
            queries=blocks.queries,
            in_chain=stream.in_chain,
            kept=kept,
        )
        return stream.sublayer_output(context, attention.out, attention.out_bias, squares, attention.epsilon)

    def attend_cache(self, stream: ResidualStream, attention: Attention, cache: BeamCache, rows: int) -> SublayerOutput:
        """What self-attention of one more position of every row adds to the residual."""
        from rela.kernels.search import step_attention

        qkv = stream.project(attention.qkv, attention.qkv_bias)
        context, squares = self.new_context(rows, attention)
        step_attention.attend_cache(qkv, cache, attention.heads, context, squares, in_chain=stream.in_chain)
        return stream.sublayer_output(context, attention.out, attention.out_bias, squares, attention.epsilon)

    def new_context(self, rows: int, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """Empty tensors for an attention's context [R, C] and, where a norm follows, its squares [R, H · G]."""
        from rela.kernels.search.step_attention import groups_of

        sums = self.heads * groups_of(self.config.width // self.heads)
        context = torch.empty(rows, self.config.width, dtype=self.dtype, device=self.device)
        squares = torch.empty(rows, sums, dtype=torch.float32, device=self.device) if attention.has_norm else None
        return context, squares

    def step(self, buffers: Buffers, size: int, in_chain: bool, watched: int | None = None) -> Tensor:
        """Hidden states [R, C] of the next position of the rows of the first `size` active sentences.

        The queries of the watched layer's cross attention are kept in the buffers.
        """
        width, rows = self.config.width, size * buffers.beam
        norms = self.decoder_norms[1]
        stream = self.embed(buffers, rows, in_chain)
        blocks = Blocks(buffers.active_blocks, size, buffers.beam)
        for i, layer in enumerate(self.decoder):
            cross = layer.cross
            assert cross is not None
            stream.add(self.attend_cache(stream, layer.attention, buffers.layer_cache(i), rows), norms[3 * i])
            q = stream.project(cross.qkv[:width], cross.qkv_bias[:width])
            k, v = buffers.memory[:, 2 * i * width : 2 * (i + 1) * width].split(width, dim=1)
            kept = buffers.kept_queries if i == watched else None
            stream.add(self.attend_blocks(stream, cross, (q, k, v), blocks, kept), norms[3 * i + 1])
            self.feed_forward(stream, layer, norms[3 * i + 2])
        stream.add_pending()
        return stream.x

    def watched_weights(
        self,
        buffers: Buffers,
        layer: int,
        entries: Tensor,
        keys: Tensor,
        inside: Tensor,
        heads: tuple[int, ...] | None = None,
    ) -> Tensor:
        """Cross attention weights [B, heads, N, S] of kept queries, by their entries [B, N], in float32.

        The keys are rows [B, S] of the buffers' memory; `inside` [B, S] is False where a sentence has no more. `heads`
        are those wanted, all by default.
        """
        cross, width = self.decoder[layer].cross, self.config.width
        assert cross is not None
        memory = buffers.memory[:, 2 * layer * width : (2 * layer + 1) * width]
        q, k = (
            rows[indices].unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for rows, indices in ((buffers.kept_queries.queries, entries), (memory, keys))
        )
        threshold = cross.heads.threshold
        theta = 0.0 if threshold is None else threshold
        if heads is not None:
            q, k = (torch.stack([x[:, head] for head in heads], 1) for x in (q, k))
            theta = torch.stack([theta[head] for head in heads]) if isinstance(theta, Tensor) else theta
        q, k = q.float(), k.float()
        scale = (width // self.heads) ** -0.5
        return attention_weights(q, k, cross.heads.activation, scale, inside[:, None, None], None, theta)

    def embed(self, buffers: Buffers, rows: int, in_chain: bool) -> ResidualStream:
        """The residual stream of a step, with the last token of every row in it."""
        from rela.kernels.search import step_layers

        residual = torch.empty(rows, self.config.width, dtype=torch.float32, device=self.device)
        x = torch.empty(rows, self.config.width, dtype=self.dtype, device=self.device)
        step_layers.embed(
            buffers.state.last_tokens,
            buffers.active,
            buffers.state.lengths,
            self.target_table,
            self.positions,
            self.scale,
            self.decoder_norms[0],
            residual,
            x,
            beam=buffers.beam,
            in_chain=in_chain,
        )
        return ResidualStream(residual, x, in_chain, thin=rows <= self.thin_rows)


@dataclass(frozen=True)
class Blocks:
    """The first `count` rows of a table [blocks, 4]: first query, queries (at most `queries`), first key, keys."""

    table: Tensor
    count: int
    queries: int


class ResidualStream:
    """The residual of some rows, the input x of the next product, and a sublayer output that is still to be added.

    In a chain all kernels are ours and each is launched early. Where rows are few (`thin`), norms are part of products.
    """

    def __init__(self, residual: Tensor, x: Tensor, in_chain: bool = False, thin: bool = False) -> None:
        self.residual, self.x, self.in_chain, self.thin = residual, x, in_chain, thin
        self.pending: tuple[SublayerOutput, Norm] | None = None

    def add(self, output: SublayerOutput, norm: Norm) -> None:
        """Add a sublayer's output, then the norm; computed by the kernel that needs the sum."""
        self.pending = output, norm

    def norm_only(self, norm: Norm) -> None:
        from rela.kernels.search.step_layers import residual_norm

        residual_norm(self.residual, None, norm, self.residual, self.x)

    def add_pending(self) -> None:
        """Bring residual and x up to date."""
        from rela.kernels.search.step_layers import residual_norm

        if self.pending is not None:
            residual_norm(self.residual, *self.pending, self.residual, self.x, in_chain=self.in_chain)
            self.pending = None

    def project(self, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
        """x · weightᵀ + bias, [R, N], of the x after what is pending."""
        from rela.kernels.search.step_layers import norm_linear, thin_linear

        if not self.in_chain:
            self.add_pending()
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
            self.add_pending()
            thin_linear(self.x, weight, bias, out, relu=relu, in_chain=True)
        return out

    def sublayer_output(
        self, inputs: Tensor, weight: Tensor, bias: Tensor, squares: Tensor | None = None, epsilon: float = 0.0
    ) -> SublayerOutput:
        """inputs · weightᵀ as an output whose bias and, unless rows are few, 1/RMS the next kernel applies."""
        from rela.kernels.search.step_layers import SublayerOutput, thin_linear

        if not self.in_chain:
            return SublayerOutput(inputs @ weight.t(), bias, squares, epsilon)
        parts = max(1, weight.size(1) // PART)
        y = torch.empty(parts, inputs.size(0), weight.size(0), dtype=torch.float32, device=weight.device)
        if self.thin:
            thin_linear(inputs, weight, None, y, squares, epsilon, in_chain=True)
            return SublayerOutput(y, bias)
        thin_linear(inputs, weight, None, y, in_chain=True)
        return SublayerOutput(y, bias, squares, epsilon)
