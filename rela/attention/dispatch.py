"""attend(): one signature over the reference, PyTorch's softmax kernels and the fused kernels.

What a call asks for is checked once for all calls like it: a plan is looked up by shapes, strides, types and options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention import checks, paths, reference
from rela.attention.kinds import Kind, kind_without_norm
from rela.attention.masks import combine_masks, with_slopes
from rela.device import is_plain_eager

Window = tuple[int | None, int | None]


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


class Options(NamedTuple):
    """What a call asks for beside its queries, keys and values: the arguments of `attend`, by the same names."""

    kind: Kind
    mask: Tensor | None = None
    key_lengths: Tensor | None = None
    key_starts: Tensor | None = None
    window: Window | None = None
    causal: bool = False
    scale: float | None = None
    threshold: float | Tensor = 0.0
    dropout: float = 0.0
    backend: str = "auto"


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """What is known of a call before its numbers: the path, its scale, what hides keys, and the kernels' own notes."""

    path: str
    scale: float
    causal: bool
    """Whether causality hides a key: not where there is one query."""
    sides: Window
    kernel: Callable[..., Tensor] | None
    again: Callable[..., Tensor] | None = None
    """A kernel's function that needs no more than the tensors of such a call, in eager mode, and dropout's seed."""
    memo: dict[Any, Any] = field(default_factory=dict)


PLANS: dict[tuple, Plan] = {}
MOST_PLANS = 4096  # lengths vary without end; a plan is made again in some dozens of microseconds


def attend_heads(q: Tensor, k: Tensor, v: Tensor, options: Options, wide: bool = False) -> Tensor:
    """The context [B, H, T, D] of `attend`, for callers that apply the norm of `options.kind` themselves.

    `wide` lets the reference give it in float32 where q is less; the kernels give it in q's type.
    """
    plan = plan_of(q, k, v, options)
    if plan.again is not None:
        threshold = options.threshold if isinstance(options.threshold, Tensor) else None
        tensors = q, k, v, threshold, options.mask, options.key_lengths, options.key_starts
        return plan.again(*tensors, dropout_seed(q, options.dropout)) if options.dropout else plan.again(*tensors)
    if plan.path in ("fused", "simplex"):
        return fused(plan, q, k, v, options)
    if plan.path == "decode":
        return decoded(plan, q, k, v, options)
    if plan.path == "softmax":
        return torch_softmax(plan, q, k, v, options)
    allowed, bias = all_limits(plan, q, k, options)
    given = options.kind.weights, plan.scale, allowed, bias, options.threshold, options.dropout
    return reference.attend(q, k, v, *given, wide)[0]


def plan_of(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Plan:
    """The plan of a call: looked up where sizes are numbers, made anew under a compiler or tracer."""
    if not is_plain_eager(q):
        return make_plan(q, k, v, options)
    try:
        key = key_of(q, k, v, options)
        plan = PLANS.get(key)
    except (AttributeError, TypeError):  # no tensor, no number: the checks say which
        return make_plan(q, k, v, options)
    if plan is None:
        plan = make_plan(q, k, v, options)
        if len(PLANS) >= MOST_PLANS:
            PLANS.clear()
        PLANS[key] = plan
    elif not q.is_cuda:
        # a plan knows shapes, not values, and looking at those costs nothing here
        checks.check_limit_values(options.key_lengths, "key_lengths", q.size(0), k.size(2))
        checks.check_limit_values(options.key_starts, "key_starts", q.size(0), k.size(2))
    return plan


def key_of(q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple:
    """All that checks, the choice of a path and compiled kernels may depend on, and no value of a tensor."""
    kind, mask, key_lengths, key_starts, window, causal, scale, threshold, dropout, backend = options
    learned = threshold if isinstance(threshold, Tensor) else None
    gradient = torch.is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (mask is not None and mask.requires_grad)
        or (learned is not None and learned.requires_grad)
    )
    places = q.data_ptr(), k.data_ptr(), v.data_ptr()
    return (
        q.shape,
        q.stride(),
        q.dtype,
        q.device,
        k.shape,
        k.stride(),
        k.dtype,
        k.device,
        v.shape,
        v.stride(),
        v.dtype,
        v.device,
        (places[0] | places[1] | places[2]) % 16 and tuple(place % 16 for place in places),
        kind.weights,
        layout_of(mask),
        layout_of(key_lengths),
        layout_of(key_starts),
        window,
        causal,
        scale,
        type(scale),
        (threshold, type(threshold)) if learned is None else layout_of(learned),
        dropout,
        type(dropout),
        backend,
        gradient,
    )


def layout_of(x: Tensor | None) -> tuple | None:
    """Shape, strides, type, device and alignment of a tensor."""
    return None if x is None else (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16)


def make_plan(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Plan:
    """Check every argument of a call and choose its path."""
    scale = check_dense(q, k, v, options)
    mask, kind = options.mask, options.kind
    causal, sides = simplest(options.causal, options.window, q.size(2), k.size(2))
    inputs = (q, k, v, mask, options.threshold)
    gradient = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
    limits = options.key_lengths is not None, options.key_starts is not None
    call = paths.call_of(q, k, v, kind, mask, *limits, sides, causal, gradient, options.dropout, options.backend)
    path = paths.path_of(call)
    kernel = kernel_of(path)
    again = None
    if path in ("fused", "decode") and is_plain_eager(q):
        again = repeatable(q, k, v, options, scale, causal, sides, gradient, path == "decode")
    return Plan(path, scale, causal, sides, kernel, again)


def repeatable(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    options: Options,
    scale: float,
    causal: bool,
    sides: Window,
    gradient: bool,
    decoding: bool,
) -> Callable[..., Tensor] | None:
    """The kernel's function of the tensors of a call alone; None where something has to be made of them first."""
    from rela.kernels.attention import functional

    if (not isinstance(options.threshold, Tensor) and options.threshold) or v.size(-1) != q.size(-1):
        return None
    threshold = options.threshold if isinstance(options.threshold, Tensor) else None
    return functional.repeatable(
        q,
        k,
        v,
        threshold,
        options.mask,
        options.key_lengths,
        options.key_starts,
        scale=scale,
        activation=options.kind.weights,
        causal=causal,
        window=sides,
        gradient=gradient,
        decoding=decoding,
        dropout=options.dropout,
    )


def kernel_of(path: str) -> Callable[..., Tensor] | None:
    """The function of a fused path."""
    if path not in ("fused", "simplex", "decode"):
        return None
    from rela.kernels.attention import functional

    kernels: dict[str, Callable[..., Tensor]] = {
        "fused": functional.relu_attention,
        "simplex": functional.simplex_attention,
        "decode": functional.relu_attention_decode,
    }
    return kernels[path]


def simplest(causal: bool, window: Window | None, queries: int, keys: int) -> tuple[bool, Window]:
    """Causality and the sides of a window that hide a key; sizes that a compiler does not know hide what they may."""
    left, right = (None, None) if window is None else window
    if right == 0:
        causal = True
    if causal:
        right = None
    if not isinstance(queries, int) or not isinstance(keys, int):
        return bool(causal), (left, right)
    if left is not None and left >= keys:
        left = None
    if queries == 1:  # it ends where the keys end
        return False, (left, None)
    return bool(causal), (left, None if right is not None and right >= queries else right)


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
    allowed, bias = combine_masks(mask, key_lengths, causal, q.size(2), k.size(2), q.device, key_starts, window)
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


def check_dense(q: Tensor, k: Tensor, v: Tensor | None, options: Options) -> float:
    """Check every argument of a dense call; the scale, 1/√D unless given."""
    checks.check_tensors(q, k, v)
    batch, heads, queries, keys = q.size(0), q.size(1), q.size(2), k.size(2)
    checks.check_mask(options.mask, batch, heads, queries, keys, q.device)
    checks.check_key_limit(options.key_lengths, "key_lengths", batch, keys, q.device)
    checks.check_key_limit(options.key_starts, "key_starts", batch, keys, q.device)
    checks.check_causal(options.causal)
    checks.check_window(options.window)
    kind, threshold, dropout, scale = options.kind, options.threshold, options.dropout, options.scale
    checks.check_options(kind, heads, threshold, dropout, options.backend, scale, q.device)
    return q.size(-1) ** -0.5 if scale is None else scale


def why_not_fused(q: Tensor, kind: Kind, mask: Tensor | None = None, v: Tensor | None = None) -> str | None:
    """The first reason the fused kernels cannot serve this call, or None if they can."""
    return paths.why_not_fused(paths.call_of(q, q, v, kind, mask))


def all_limits(plan: Plan, q: Tensor, k: Tensor, options: Options) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, bias) of everything that limits the queries of a call."""
    limits = options.key_lengths, plan.causal, q.size(2), k.size(2), q.device, options.key_starts, plan.sides
    return combine_masks(options.mask, *limits)


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
    grouped = bool(q.size(1) != k.size(1))  # torch.jit.trace makes sizes tensors
    limits = options.mask, options.key_lengths, options.key_starts
    limited = any(limit is not None for limit in limits) or plan.sides != (None, None)
    dropout = options.dropout
    if not limited and not (plan.causal and q.size(2) != k.size(2)):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, plan.causal, scale=plan.scale, enable_gqa=grouped)
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
