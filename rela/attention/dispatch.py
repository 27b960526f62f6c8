"""attend(): one signature over the reference and the fused kernels, and the reason for the choice."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention import checks, reference
from rela.attention.kinds import Kind, kind_without_norm
from rela.attention.masks import combine_masks
from rela.device import triton_is_installed


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kind: str | Kind = "relu",
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """The context act(q kᵀ · scale - θ) · v [B, H, T, D] of queries [B, H, T, D], keys and values [B, Hk, S, D].

    `kind` names the weights: "relu" are those of ReLA. A kind with an output norm, such as "rela-g", is refused:
    its norm acts on merged heads, which `MultiheadAttention` has. `mask` is boolean (True: may look) or float
    (added to the scores; -inf: never), [T, S] or [B, H, T, S] with sizes of 1 where it repeats; `key_lengths` [B]
    hides the keys after each sentence's end; `causal` hides later keys, both sequences ending together when
    T ≠ S. `threshold` θ is a number or a tensor [H]. `dropout` acts on the weights. `backend="auto"` takes the
    fused path where it can serve; "triton" raises the reason where it cannot.
    """
    return attend_heads(q, k, v, kind_without_norm(kind), mask, key_lengths, causal, scale, threshold, dropout, backend)


def attend_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kind: Kind,
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    dropout: float = 0.0,
    backend: str = "auto",
    wide: bool = False,
) -> Tensor:
    """The context [B, H, T, D] of `attend`, for callers that apply the norm of `kind` themselves.

    `wide` lets the reference give it in float32 where q is less; the kernels give it in q's type.
    """
    scale = check_dense(q, k, v, kind, mask, key_lengths, scale, threshold, dropout, backend)
    reason = why_not_fused(q, kind, mask, v)
    if backend == "triton" and reason is not None:
        raise ValueError(f"backend='triton' cannot serve this call: {reason}")
    if backend != "reference" and reason is None:
        return fused(q, k, v, kind, mask, key_lengths, causal, scale, threshold, dropout)
    if backend == "auto" and torch_softmax_serves(q, k, kind, mask, key_lengths, causal):
        grouped = bool(q.size(1) != k.size(1))  # torch.jit.trace makes sizes tensors
        return F.scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=scale, enable_gqa=grouped)
    allowed, bias = combine_masks(mask, key_lengths, causal, q.size(2), k.size(2), q.device)
    return reference.attend(q, k, v, kind.weights, scale, allowed, bias, threshold, dropout, wide)[0]


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    kind: str | Kind = "relu",
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
) -> Tensor:
    """The weights act(q kᵀ · scale - θ) [B, H, T, S]; arguments as in `attend`."""
    kind = kind_without_norm(kind)
    scale = check_dense(q, k, None, kind, mask, key_lengths, scale, threshold, 0.0, "reference")
    allowed, bias = combine_masks(mask, key_lengths, causal, q.size(2), k.size(2), q.device)
    return reference.attention_weights(q, k, kind.weights, scale, allowed, bias, threshold)


def check_dense(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    kind: Kind,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    scale: float | None,
    threshold: float | Tensor,
    dropout: float,
    backend: str,
) -> float:
    """Check every argument of a dense call; the scale, 1/√D unless given."""
    checks.check_tensors(q, k, v)
    batch, heads, queries, keys = q.size(0), q.size(1), q.size(2), k.size(2)
    checks.check_mask(mask, batch, heads, queries, keys, q.device)
    checks.check_key_lengths(key_lengths, batch, keys, q.device)
    checks.check_options(kind, heads, threshold, dropout, backend, scale, q.device)
    return q.size(-1) ** -0.5 if scale is None else scale


def why_not_fused(q: Tensor, kind: Kind, mask: Tensor | None = None, v: Tensor | None = None) -> str | None:
    """The first reason the fused kernel cannot serve this call, or None if it can."""
    from rela.kernels.attention.activations import ACTIVATIONS
    from rela.kernels.attention.problem import LARGEST_HEAD, TYPES

    if kind.weights not in ACTIVATIONS:
        return f"{kind.weights} weights have no fused kernel; it has {', '.join(ACTIVATIONS)}"
    if not q.is_cuda:
        return f"the fused kernel runs on CUDA tensors, and q is on {q.device.type}"
    if not triton_is_installed():
        return "Triton is not installed"
    if q.dtype not in TYPES:
        return f"the fused kernel takes float32, bfloat16 and float16, and q is {q.dtype}"
    if q.size(-1) > LARGEST_HEAD:
        return f"the fused kernel takes head sizes up to {LARGEST_HEAD}, and q has {q.size(-1)}"
    if v is not None and v.size(-1) != q.size(-1):
        return f"the fused kernel takes one head size, and q has {q.size(-1)}, v {v.size(-1)}"
    if mask is not None and mask.dtype != torch.bool:
        return "the fused kernel takes boolean masks, and this one is added to the scores"
    return None


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kind: Kind,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    causal: bool,
    scale: float,
    threshold: float | Tensor,
    dropout: float,
) -> Tensor:
    """One call of the Triton kernel."""
    from rela.kernels.attention.functional import relu_attention

    if mask is not None and mask.dim() == 2:
        mask = mask[None, None]
    return relu_attention(
        q,
        k,
        v,
        scale=scale,
        activation=kind.weights,
        causal=causal,
        threshold=per_head(threshold, q),
        key_lengths=key_lengths,
        mask=mask,
        dropout=dropout,
        seed=dropout_seed(q, dropout),
    )


def torch_softmax_serves(
    q: Tensor, k: Tensor, kind: Kind, mask: Tensor | None, key_lengths: Tensor | None, causal: bool
) -> bool:
    """Whether PyTorch's own softmax kernel gives our answer: not with masks, whose empty rows it may turn into NaN,
    nor causally when T ≠ S, where it aligns the two sequences at their start."""
    unmasked = mask is None and key_lengths is None and not (causal and q.size(2) != k.size(2))
    # For a single query PyTorch's CPU kernel splits the keys over threads by the batch size, so that a row's
    # last bits would depend on the rows beside it; decoding promises that they do not.
    decoding_on_cpu = q.size(2) == 1 and not q.is_cuda
    return kind.weights == "softmax" and unmasked and k.size(2) > 0 and not decoding_on_cpu


def per_head(threshold: float | Tensor, q: Tensor) -> Tensor | None:
    """θ as the kernels take it: one float for each head, or None where it is zero."""
    if isinstance(threshold, Tensor):
        return threshold
    return q.new_full((q.size(1),), threshold, dtype=torch.float32) if threshold else None


def dropout_seed(q: Tensor, dropout: float) -> Tensor | int:
    """A seed drawn on the device by torch's generator, so that nothing waits and torch.manual_seed decides."""
    return torch.randint(2**31 - 1, (), device=q.device) if dropout else 0
