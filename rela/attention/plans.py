"""Plans: what is known of a call of `attend` before its numbers, checked and chosen once for all calls like it.

A plan is looked up by the shapes, strides, types and options of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rela.attention import checks, paths
from rela.attention.kinds import Kind
from rela.attention.masks import combine_masks
from rela.device import is_plain_eager

Window = tuple[int | None, int | None]


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
    gradient: bool = False
    again: Callable[..., Tensor] | None = None
    """A kernel's function that needs no more than the tensors of such a call, in eager mode, and dropout's seed."""
    with_norm: Callable[..., Tensor] | None = None
    """The same for a call that a norm follows: of all these tensors, the norm's gain, gate and ε, and `merged`."""
    memo: dict[Any, Any] = field(default_factory=dict)


PLANS: dict[tuple, Plan] = {}
MOST_PLANS = 4096  # lengths vary without end; a plan is made again in some dozens of microseconds


def plan_of(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Plan:
    """The plan of a call: looked up where sizes are numbers, made anew under a compiler or tracer."""
    if not is_plain_eager(q):
        return make_plan(q, k, v, options)
    try:
        key = key_of(q, k, v, options)
        plan = PLANS.get(key)
    except (AttributeError, TypeError, RuntimeError):  # no tensor, no dense one, no number: the checks say which
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
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr()
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
        (addresses[0] | addresses[1] | addresses[2]) % 16 and tuple(address % 16 for address in addresses),
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
    plan = Plan(path, scale, causal, sides, kernel_of(path), gradient)
    if path in ("fused", "decode") and is_plain_eager(q):
        return repeatable(plan, q, k, v, options, gradient)
    return plan


def repeatable(plan: Plan, q: Tensor, k: Tensor, v: Tensor, options: Options, gradient: bool) -> Plan:
    """The plan with functions of the tensors of a call alone, unless something has to be made of them first."""
    from rela.kernels.attention import functional, normalised

    if (not isinstance(options.threshold, Tensor) and options.threshold) or v.size(-1) != q.size(-1):
        return plan
    threshold = options.threshold if isinstance(options.threshold, Tensor) else None
    tensors = q, k, v, threshold, options.mask, options.key_lengths, options.key_starts
    problem = functional.repeatable_problem(
        *tensors,
        scale=plan.scale,
        activation=options.kind.weights,
        causal=plan.causal,
        window=plan.sides,
        dropout=options.dropout,
    )
    if problem is None:
        return plan
    decoding = plan.path == "decode"
    again = functional.repeated(problem, gradient, decoding)
    return replace(plan, again=again, with_norm=normalised.repeated(problem, gradient, decoding))


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


def limits_of(q: Tensor, k: Tensor, options: Options) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, bias) of everything that a call's options say of its queries; each broadcasts to [B, H, T, S]."""
    given = options.key_lengths, options.causal, q.size(2), k.size(2), q.device, options.key_starts, options.window
    return combine_masks(options.mask, *given)
