"""attend(): one signature over the reference, PyTorch's softmax kernels and the fused kernels.

A plan (rela/attention/plans.py) says which of them computes a call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from rela.attention import blocks, checks, paths, reference
from rela.attention.kinds import Kind, kind_without_norm
from rela.attention.masks import with_slopes
from rela.attention.norms import parameters_of
from rela.attention.plans import Options, Plan, Window, check_dense, limits_of, plan_of
from rela.device import is_plain_eager


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kind: str | Kind = "relu",
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: Window | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    dropout: float = 0.0,
    backend: str = "auto",
    alibi_slopes: Tensor | None = None,
) -> Tensor:
    """The context act(q kᵀ · scale - θ) · v [B, H, T, D] of queries [B, H, T, D], keys and values [B, Hk, S, D].

    `kind` names the weights: "relu" are those of ReLA. A kind with an output norm, such as "rela-g", is refused:
    its norm acts on merged heads, which `MultiheadAttention` has. `mask` is boolean (True: may look) or float
    (added to the scores; -inf: never), [T, S] or [B, H, T, S] with sizes of 1 where it repeats; `key_lengths` [B]
    hides the keys after each sentence's end, `key_starts` [B] those before its beginning; `causal` hides later keys,
    both sequences ending together when T ≠ S; `window` (left, right) hides keys more than `left` before or `right`
    after a query's own position, None for no limit. All hold at once. `threshold` θ is a number or a tensor [H].
    `dropout` acts on the weights. `backend="auto"` takes the fused path where it can serve; "triton" raises the
    reason where it cannot. `alibi_slopes` [H] takes slope times distance of query and key off the scores.
    """
    mask = sloped(mask, alibi_slopes, q, k)
    options = Options(
        kind_without_norm(kind), mask, key_lengths, key_starts, window, causal, scale, threshold, dropout, backend
    )
    return attend_heads(q, k, v, options)


def attend_heads(q: Tensor, k: Tensor, v: Tensor, options: Options, wide: bool = False) -> Tensor:
    """The context [B, H, T, D] of `attend`, for callers that apply the norm of `options.kind` themselves.

    `wide` lets the reference give it in float32 where q is less; the kernels give it in q's type.
    """
    return computed(plan_of(q, k, v, options), q, k, v, options, wide)


def attend_normalised(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    options: Options,
    norm: nn.Module | None,
    wide: bool = False,
    merged: bool = True,
) -> Tensor:
    """The context under the norm of its merged heads, in q's type: [B, T, H·D], or [B, T, H, D] if not `merged`.

    `norm` is the module, or None. Where kernels compute attention and norm, they are one function, with one node of
    autograd and no views between.
    """
    plan = plan_of(q, k, v, options)
    fusable = parameters_of(norm) if plan.path in ("fused", "decode") and v.size(-1) == q.size(-1) else None
    if fusable is not None and plan.with_norm is not None and (plan.gradient or not records(*fusable)):
        threshold = options.threshold if isinstance(options.threshold, Tensor) else None
        seed = dropout_seed(q, options.dropout) if options.dropout else None
        tensors = q, k, v, threshold, options.mask, options.key_lengths, options.key_starts, seed
        return plan.with_norm(tensors, fusable, merged)
    if fusable is not None and not is_plain_eager(q) and (plan.path == "fused" or not records(*fusable)):
        out = with_norm(plan, q, k, v, options, *fusable)
        return out.flatten(2) if merged else out
    context = computed(plan, q, k, v, options, wide).transpose(1, 2)
    rows = normalised(context.flatten(2), norm, q.dtype)
    return rows if merged else rows.unflatten(2, context.shape[2:])


def normalised(rows: Tensor, norm: nn.Module | None, dtype: torch.dtype) -> Tensor:
    """Merged heads [..., H·D] under their norm, if there is one, in `dtype`."""
    rows = rows if norm is None else norm(rows)
    return rows if rows.dtype == dtype else rows.to(dtype)


def records(gain: Tensor, gate: Tensor | None, eps: float) -> bool:
    """Whether autograd records what is computed with these parameters of a norm."""
    return torch.is_grad_enabled() and (gain.requires_grad or (gate is not None and gate.requires_grad))


def computed(plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options, wide: bool) -> Tensor:
    """The context of a call by its plan."""
    if plan.again is not None:
        threshold = options.threshold if isinstance(options.threshold, Tensor) else None
        tensors = q, k, v, threshold, options.mask, options.key_lengths, options.key_starts
        return plan.again(*tensors, dropout_seed(q, options.dropout)) if options.dropout else plan.again(*tensors)
    if plan.path in ("fused", "simplex"):
        return fused(plan, q, k, v, options)
    if plan.path == "decode":
        return decoded(plan, q, k, v, options)
    if plan.path == "softmax" and forward_ad._current_level < 0:  # PyTorch's kernels have no forward derivative
        return torch_softmax(plan, q, k, v, options)
    if plan.path == "blocks" and blocks.serves(q, options.mask):
        hidden = options.key_lengths, options.key_starts, plan.causal, plan.sides
        limits = blocks.Limits.of_call(options.kind.weights, plan.scale, *hidden, options.dropout)
        return blocks.attend(q, k, v, limits, options.threshold, options.mask, wide)
    allowed, bias = all_limits(plan, q, k, options)
    given = options.kind.weights, plan.scale, allowed, bias, options.threshold, options.dropout
    return reference.attend(q, k, v, *given, wide)[0]


def sloped(mask: Tensor | None, slopes: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask with the bias of ALiBi's slopes, checked before they are added."""
    if slopes is None:
        return mask
    checks.check_tensors(q, k, None)
    checks.check_slopes(slopes, q.size(1), q.device)
    checks.check_mask(mask, q.size(0), q.size(1), q.size(2), k.size(2), q.device)
    return with_slopes(mask, slopes, q.size(2), k.size(2))


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    kind: str | Kind = "relu",
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: Window | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    alibi_slopes: Tensor | None = None,
) -> Tensor:
    """The weights act(q kᵀ · scale - θ) [B, H, T, S]; arguments as in `attend`."""
    kind, mask = kind_without_norm(kind), sloped(mask, alibi_slopes, q, k)
    options = Options(kind, mask, key_lengths, key_starts, window, causal, scale, threshold, backend="reference")
    scale = check_dense(q, k, None, options)
    allowed, bias = limits_of(q, k, options)
    return reference.attention_weights(q, k, kind.weights, scale, allowed, bias, threshold)


class RowStatistics(NamedTuple):
    """Three facts about each row of weights, [B, H, T] each."""

    nonzeros: Tensor
    """The number of weights that are not zero, int32."""
    argmax: Tensor
    """The key of the largest weight, the first of equals; -1 in a row without weights; int32."""
    largest: Tensor
    """That weight, float32; 0 in a row without weights."""


def attend_with_statistics(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kind: str | Kind = "relu",
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: Window | None = None,
    causal: bool = False,
    scale: float | None = None,
    threshold: float | Tensor = 0.0,
    backend: str = "auto",
    alibi_slopes: Tensor | None = None,
) -> tuple[Tensor, RowStatistics]:
    """The context of `attend` and, from the same pass, how many weights of each row are not zero and the largest.

    Only the context is differentiable. On a Hopper GPU scores that differ in less than a part in 2²⁰ count as equal.
    """
    kind, mask = kind_without_norm(kind), sloped(mask, alibi_slopes, q, k)
    options = Options(kind, mask, key_lengths, key_starts, window, causal, scale, threshold, 0.0, backend)
    plan = plan_of(q, k, v, options)
    if plan.path in ("fused", "decode"):
        from rela.kernels.attention.functional import relu_attention_with_statistics

        context, *rows = relu_attention_with_statistics(
            *of_one_size(q, k, v),
            scale=plan.scale,
            activation=kind.weights,
            causal=plan.causal,
            threshold=per_head(threshold, q),
            key_lengths=key_lengths,
            key_starts=key_starts,
            window=plan.sides,
            mask=four_dimensional(mask),
        )
        return context[..., : v.size(-1)], RowStatistics(*rows)
    allowed, bias = all_limits(plan, q, k, options)
    context, weights = reference.attend(q, k, v, kind.weights, plan.scale, allowed, bias, threshold, 0.0)
    return context, row_statistics(weights.detach(), allowed)


def row_statistics(weights: Tensor, allowed: Tensor | None = None) -> RowStatistics:
    """The statistics of rows of weights [B, H, T, S]; a key that is not allowed is not the largest."""
    nonzeros = (weights != 0).sum(-1, dtype=torch.int32)
    if weights.size(-1) == 0:
        return RowStatistics(nonzeros, nonzeros - 1, nonzeros.float())
    seen = weights if allowed is None else weights.masked_fill(~allowed, -torch.inf)
    null = nonzeros == 0
    argmax = seen.argmax(-1).to(torch.int32).masked_fill(null, -1)
    return RowStatistics(nonzeros, argmax, seen.amax(-1).float().masked_fill(null, 0.0))


def why_not_fused(q: Tensor, kind: Kind, mask: Tensor | None = None, v: Tensor | None = None) -> str | None:
    """The first reason the fused kernels cannot serve this call, or None if they can."""
    return paths.why_not_fused(paths.call_of(q, q, v, kind, mask))


def all_limits(plan: Plan, q: Tensor, k: Tensor, options: Options) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, bias) of everything that limits the queries of a call."""
    return limits_of(q, k, options._replace(causal=plan.causal, window=plan.sides))


def of_one_size(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of the larger of two head sizes: zeros behind q and k change no score, those behind v are cut off."""
    more = v.size(-1) - q.size(-1)
    if more > 0:
        return F.pad(q, (0, more)), F.pad(k, (0, more)), v
    return (q, k, F.pad(v, (0, -more))) if more else (q, k, v)


def fused(plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """One call of the fused kernels, which know one head size."""
    if v.size(-1) != q.size(-1):
        return fused(plan, *of_one_size(q, k, v), options)[..., : v.size(-1)]
    assert plan.kernel is not None
    theta = per_head(options.threshold, q)
    return plan.kernel(
        q,
        k,
        v,
        scale=plan.scale,
        activation=options.kind.weights,
        causal=plan.causal,
        key_lengths=options.key_lengths,
        key_starts=options.key_starts,
        window=plan.sides,
        mask=four_dimensional(options.mask),
        dropout=options.dropout,
        seed=dropout_seed(q, options.dropout),
        memo=plan.memo,
        **({} if theta is None else {"threshold": theta}),
    )


def with_norm(
    plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options, gain: Tensor, gate: Tensor | None, eps: float
) -> Tensor:
    """The operator of the fused kernels, or of the kernel for few queries, with a norm, [B, T, H, D]."""
    from rela.kernels.attention import decode_norm, normalised

    given: dict[str, Any] = {
        "scale": plan.scale,
        "activation": options.kind.weights,
        "causal": plan.causal,
        "threshold": per_head(options.threshold, q),
        "key_lengths": options.key_lengths,
        "key_starts": options.key_starts,
    }
    norm = normalised.Norm(gain, gate, eps)
    if plan.path == "decode":
        return decode_norm.by_operator(q, k, v, norm, **given, left=plan.sides[0])
    mask, seed = four_dimensional(options.mask), dropout_seed(q, options.dropout)
    rest: dict[str, Any] = {"window": plan.sides, "mask": mask, "dropout": options.dropout, "seed": seed}
    return normalised.by_operator(q, k, v, norm, **given, **rest)


def decoded(plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """One call of the fused kernel for few queries."""
    if v.size(-1) != q.size(-1):
        return decoded(plan, *of_one_size(q, k, v), options)[..., : v.size(-1)]
    assert plan.kernel is not None
    return plan.kernel(
        q,
        k,
        v,
        scale=plan.scale,
        activation=options.kind.weights,
        causal=plan.causal,
        threshold=per_head(options.threshold, q),
        key_lengths=options.key_lengths,
        key_starts=options.key_starts,
        left=plan.sides[0],
        memo=plan.memo,
    )


def torch_softmax(plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """Softmax attention by PyTorch's kernels; a query that may look at nothing gets zeros, and passes no gradient."""
    # By a branch: of sizes, torch.compile makes symbols and torch.jit.trace tensors, and the kernel wants a bool.
    grouped = {"enable_gqa": True} if q.size(1) != k.size(1) else {}
    limits = options.mask, options.key_lengths, options.key_starts
    limited = any(limit is not None for limit in limits) or plan.sides != (None, None)
    dropout = options.dropout
    # torch.jit.trace would keep the answer for other sizes
    if not limited and not (plan.causal and (torch.jit.is_tracing() or q.size(2) != k.size(2))):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, plan.causal, scale=plan.scale, **grouped)
    allowed, bias = all_limits(plan, q, k, options)
    if grouped:  # the kernels that take a mask want a key head for each query head
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    if allowed is None:
        seen, empty = bias, None
    else:
        empty = ~allowed.any(-1, keepdim=True)
        # such a row looks at everything, since a softmax over nothing is NaN, and is set to zero below
        seen = allowed | empty
        if bias is not None:
            seen = bias.masked_fill(~seen, -torch.inf)
    if seen is not None and seen.dtype != torch.bool:
        seen = seen.to(q.dtype)
    context = F.scaled_dot_product_attention(q, k, v, seen, dropout, scale=plan.scale)
    return context if empty is None else context.masked_fill(empty, 0.0)


def four_dimensional(mask: Tensor | None) -> Tensor | None:
    """A mask [T, S] as the kernels take it, [1, 1, T, S]."""
    return mask[None, None] if mask is not None and mask.dim() == 2 else mask


def per_head(threshold: float | Tensor, q: Tensor) -> Tensor | None:
    """θ as the kernels take it: one float for each head, or None where it is zero."""
    if isinstance(threshold, Tensor):
        return threshold
    return q.new_full((q.size(1),), threshold, dtype=torch.float32) if threshold else None


def dropout_seed(q: Tensor, dropout: float) -> Tensor | int:
    """A seed drawn on the device by torch's generator, so that nothing waits and torch.manual_seed decides."""
    return torch.randint(2**31 - 1, (), device=q.device) if dropout else 0
