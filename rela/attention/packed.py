"""Attention over packed sentences: tokens [N, H, D] one sentence after another, no padding computed.

This is the training path: a batch is a fixed number of tokens, whatever the sentences' lengths.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention import checks, reference
from rela.attention.dispatch import dropout_seed, per_head, why_not_fused
from rela.attention.kinds import Kind, kind_of
from rela.attention.masks import length_mask


def attend_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_queries: Tensor,
    cu_keys: Tensor,
    max_queries: int,
    max_keys: int,
    *,
    kind: str | Kind = "rela-g",
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
    kind = kind_of(kind)
    checks.check_tensors(q, k, v, "THD")
    checks.check_packing(cu_queries, "cu_queries", q.size(0), max_queries, q.device)
    checks.check_packing(cu_keys, "cu_keys", k.size(0), max_keys, q.device)
    if cu_queries.shape != cu_keys.shape:
        raise ValueError(
            f"cu_keys holds {cu_keys.numel() - 1} sentences; wanted {cu_queries.numel() - 1}, as cu_queries"
        )
    checks.check_options(kind, q.size(1), threshold, dropout, backend, scale, q.device)
    scale = q.size(-1) ** -0.5 if scale is None else scale
    reason = why_not_fused(q, kind, v=v)
    if backend == "triton" and reason is not None:
        raise ValueError(f"backend='triton' cannot serve this call: {reason}")
    if backend != "reference" and reason is None:
        from rela.kernels.attention.functional import relu_attention_packed

        return relu_attention_packed(
            q, k, v, cu_queries, cu_keys, max_queries, max_keys, scale=scale, activation=kind.weights, causal=causal,
            threshold=per_head(threshold, q), dropout=dropout, seed=dropout_seed(q, dropout),
        )  # fmt: skip
    if backend == "auto" and flash_softmax_serves(q, v, kind):
        return flash_softmax(q, k, v, cu_queries, cu_keys, max_queries, max_keys, causal, scale, dropout)
    return through_padding(
        q, k, v, cu_queries, cu_keys, max_queries, max_keys, kind.weights, causal, scale, threshold, dropout
    )


def through_padding(
    q: Tensor, k: Tensor, v: Tensor, cu_queries: Tensor, cu_keys: Tensor, max_queries: int, max_keys: int,
    weights: str, causal: bool, scale: float, threshold: float | Tensor, dropout: float,
) -> Tensor:  # fmt: skip
    """The reference: pad to [B, H, T, D], attend, unpad."""
    # Where every sentence is empty, one padded place keeps inputs and output in one graph of gradients.
    max_queries, max_keys = max(max_queries, 1), max(max_keys, 1)
    allowed = allowed_pairs(cu_queries, cu_keys, max_queries, max_keys, causal)
    dense_q, dense_k, dense_v = pad(q, cu_queries, max_queries), pad(k, cu_keys, max_keys), pad(v, cu_keys, max_keys)
    context, _ = reference.attend(dense_q, dense_k, dense_v, weights, scale, allowed, None, threshold, dropout)
    return unpad(context, cu_queries, q.size(0))


def allowed_pairs(cu_queries: Tensor, cu_keys: Tensor, max_queries: int, max_keys: int, causal: bool) -> Tensor:
    """[B, 1, T or 1, S]: True where a query may look; causal sentences end together when T ≠ S."""
    lengths = cu_keys.diff()
    allowed = length_mask(lengths, max_keys)
    if not causal:
        return allowed
    t = torch.arange(max_queries, device=cu_keys.device)[:, None]
    s = torch.arange(max_keys, device=cu_keys.device)
    return allowed & (s <= t + (lengths - cu_queries.diff())[:, None, None])[:, None]


def pad(tokens: Tensor, cu: Tensor, longest: int) -> Tensor:
    """[N, H, D] packed to [B, H, longest, D], zeros after each sentence's end."""
    places = torch.arange(longest, device=cu.device)
    inside = places < cu.diff()[:, None]  # [B, longest]
    if tokens.size(0) == 0:
        tokens = F.pad(tokens, (0, 0, 0, 0, 0, 1))  # a row for the places to point at
    rows = (cu[:-1, None] + places).clamp(max=tokens.size(0) - 1)
    return tokens[rows].masked_fill(~inside[..., None, None], 0.0).transpose(1, 2)


def unpad(dense: Tensor, cu: Tensor, tokens: int) -> Tensor:
    """[B, H, T, D] to [tokens, H, D] packed; zeros after the last sentence."""
    token = torch.arange(tokens, device=cu.device, dtype=cu.dtype)
    inside = token < cu[-1]
    sentence = sentence_of(cu, tokens).clamp(max=max(cu.numel() - 2, 0))
    place = (token - cu[sentence]).clamp(0, max(dense.size(2) - 1, 0))
    if dense.size(0) == 0 or dense.size(2) == 0:
        return dense.new_zeros(tokens, dense.size(1), dense.size(3))
    return dense.transpose(1, 2)[sentence, place].masked_fill(~inside[:, None, None], 0.0)


def sentence_of(cu: Tensor, tokens: int) -> Tensor:
    """[tokens]: which sentence each packed token belongs to; filler gets the number of sentences."""
    token = torch.arange(tokens, device=cu.device, dtype=cu.dtype)
    # In all of cu, not in cu[1:]: compiled for a GPU, searchsorted reads a slice from its tensor's start (pytorch#182343).
    return torch.searchsorted(cu, token, right=True) - 1


def flash_softmax_serves(q: Tensor, v: Tensor, kind: Kind) -> bool:
    """Whether PyTorch's variable-length flash kernel can compute this softmax attention."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    size = q.size(-1)
    return kind.weights == "softmax" and q.is_cuda and half and size == v.size(-1) <= 256 and size % 8 == 0


def flash_softmax(
    q: Tensor, k: Tensor, v: Tensor, cu_queries: Tensor, cu_keys: Tensor, max_queries: int, max_keys: int,
    causal: bool, scale: float, dropout: float,
) -> Tensor:  # fmt: skip
    """PyTorch's flash kernel on packed sentences.

    The operator below `torch.nn.attention.varlen`, called directly because the public function offers no
    dropout. Filler tokens belong to no sentence, so the kernel writes neither their context nor their
    gradients: both are zeroed here.
    """
    if k.size(1) != q.size(1):
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), dim=1) for x in (k, v))
    q, k, v = zero_filler(q, cu_queries), zero_filler(k, cu_keys), zero_filler(v, cu_keys)
    context = torch.ops.aten._flash_attention_forward(
        q, k, v, cu_queries, cu_keys, max_queries, max_keys, dropout, causal, False, scale=scale
    )[0]
    return zero_filler(context, cu_queries)


def zero_filler(tokens: Tensor, cu: Tensor) -> Tensor:
    """tokens [N, H, D] with zeros after the last sentence, and zero gradient there."""
    inside = torch.arange(tokens.size(0), device=cu.device) < cu[-1]
    return torch.where(inside[:, None, None], tokens, 0.0)
