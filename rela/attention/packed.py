"""Attention over packed sentences: tokens [N, H, D] one sentence after another, no padding computed.

This is the training path: a batch is a fixed number of tokens, whatever the sentences' lengths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rela.attention import checks, paths, reference
from rela.attention.dispatch import dropout_seed, of_one_size, per_head, why_not_fused
from rela.attention.kinds import Kind, kind_without_norm
from rela.packing import Packing, allowed_pairs


def attend_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_queries: Tensor,
    cu_keys: Tensor,
    max_queries: int,
    max_keys: int,
    *,
    kind: str | Kind = "relu",
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """The context [N, H, D] of packed queries [N, H, D] over packed keys and values [M, Hk, D].

    Sentence b owns the queries cu_queries[b]:cu_queries[b + 1] and the keys cu_keys[b]:cu_keys[b + 1] (int32,
    [B + 1]); no sentence is longer than `max_queries`, `max_keys`. Tokens after the last sentence are filler
    of a static shape and get zeros. The other arguments are those of `attend`.
    """
    queries, keys = Packing(cu_queries, max_queries), Packing(cu_keys, max_keys)
    return attend_sentences(
        q,
        k,
        v,
        queries,
        keys,
        kind=kind_without_norm(kind),
        causal=causal,
        scale=scale,
        threshold=threshold,
        dropout=dropout,
        backend=backend,
    )


def attend_sentences(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    *,
    kind: Kind,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    dropout: float = 0.0,
    backend: str = "auto",
    wide: bool = False,
) -> Tensor:
    """The context [N, H, D], as `attend_packed` gives it, with q packed by `queries` and k and v by `keys`.

    The norm of `kind` is left to the caller; `wide` as in `attend_heads`.
    """
    checks.check_tensors(q, k, v, "THD")
    checks.check_packing(queries, "queries", q.size(0), q.device)
    checks.check_packing(keys, "keys", k.size(0), q.device)
    if queries.cu_seqlens.shape != keys.cu_seqlens.shape:
        raise ValueError(f"cu_keys holds {keys.sentences} sentences; wanted {queries.sentences}, as cu_queries")
    checks.check_causal(causal)
    checks.check_options(kind, q.size(1), threshold, dropout, backend, scale, q.device)
    scale = q.size(-1) ** -0.5 if scale is None else scale
    reason = why_not_fused(q, kind, v=v)
    if backend == "triton" and reason is not None:
        raise ValueError(f"backend='triton' cannot serve this call: {reason}")
    if backend != "reference" and reason is None:
        from rela.kernels.attention.functional import relu_attention_packed, simplex_attention_packed

        options: dict[str, Any] = {"scale": scale, "activation": kind.weights, "causal": causal, "dropout": dropout}
        options["seed"] = dropout_seed(q, dropout)
        tensors = *of_one_size(q, k, v), queries, keys
        if paths.is_simplex(kind.weights):
            return simplex_attention_packed(*tensors, **options)[..., : v.size(-1)]
        return relu_attention_packed(*tensors, **options, threshold=per_head(threshold, q))[..., : v.size(-1)]
    if backend == "auto" and flash_softmax_serves(q, v, kind):
        return flash_softmax(q, k, v, queries, keys, causal, scale, dropout)
    return through_padding(q, k, v, queries, keys, kind.weights, causal, scale, threshold, dropout, wide)


def through_padding(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    weights: str,
    causal: bool,
    scale: float,
    threshold: float | Tensor,
    dropout: float,
    wide: bool = False,
) -> Tensor:
    """The reference: pad to [B, H, T, D], attend, unpad."""
    # Where every sentence is empty, one padded row keeps inputs and output in one graph of gradients.
    queries, keys = (Packing(side.cu_seqlens, max(side.max_seqlen, 1)) for side in (queries, keys))
    allowed = allowed_pairs(queries, keys, causal)
    dense = queries.pad(q), keys.pad(k), keys.pad(v)
    context, _ = reference.attend(*dense, weights, scale, allowed, None, threshold, dropout, wide)
    return queries.unpad(context, q.size(0))


def flash_softmax_serves(q: Tensor, v: Tensor, kind: Kind) -> bool:
    """Whether PyTorch's variable-length flash kernel can compute this softmax attention."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    size = q.size(-1)
    return kind.weights == "softmax" and q.is_cuda and half and size == v.size(-1) <= 256 and size % 8 == 0


def flash_softmax(
    q: Tensor, k: Tensor, v: Tensor, queries: Packing, keys: Packing, causal: bool, scale: float, dropout: float
) -> Tensor:
    """The context [N, H, D] by PyTorch's flash kernel.

    The operator below `torch.nn.attention.varlen`, called directly because the public function offers no
    dropout. Filler tokens belong to no sentence, so the kernel writes neither their context nor their
    gradients: both are zeroed here.
    """
    if k.size(1) != q.size(1):
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), dim=1) for x in (k, v))
    q, k, v = queries.zero_filler(q), keys.zero_filler(k), keys.zero_filler(v)
    lengths = queries.cu_seqlens, keys.cu_seqlens, queries.max_seqlen, keys.max_seqlen
    context = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, dropout, causal, False, scale=scale)[0]
    return queries.zero_filler(context)
