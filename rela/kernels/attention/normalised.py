"""Attention of rectifiers and the norm over its merged heads in one: one node of autograd, one operator, no views.

Apart, the two have a node of autograd each, in Python, and four views between them, with a node each. On short inputs
that takes longer than the kernels (docs/host-time.md), which are those of forward.py, backward.py and rms_norm.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rela.kernels.attention.backward import backward
from rela.kernels.attention.bias import bias_gradient
from rela.kernels.attention.decode import decode
from rela.kernels.attention.forward import forward
from rela.kernels.attention.functional import flat, seed_of
from rela.kernels.attention.operators import empty_heads_last
from rela.kernels.attention.problem import Problem, layout_of
from rela.kernels.layers import rms_norm
from rela.kernels.registration import differentiable_operator, operator


class Norm(NamedTuple):
    """The norm over merged heads: its gain and its gate [H·D], and ε."""

    gain: Tensor
    gate: Tensor | None
    eps: float


class Steps(NamedTuple):
    """The kernels of a norm after a problem's attention, planned once for all with the same layouts."""

    forward: Callable[..., Tensor]
    """The normalised context, contiguous, of a context [B, H, T, D] that lies in memory as [B, T, H, D]."""
    backward: Callable[..., rms_norm.Gradients]
    """The gradients of the context, laid out as it is, of the gain and of the gate."""


def steps_of(problem: Problem, norm: Norm, merged: bool) -> Steps:
    """The kernels of a norm after this problem; their output is [B, T, H·D] if `merged`, else [B, T, H, D]."""
    key = "norm", merged, layout_of(norm.gain), layout_of(norm.gate)
    steps = problem.memo.get(key)
    if steps is None:
        B, H, T, D = problem.q.shape
        context = problem.like_queries(problem.q.dtype)
        rows = context.transpose(1, 2).flatten(2)
        run = rms_norm.planned(rows, norm.gain, norm.gate, (B, T, H * D) if merged else (B, T, H, D))
        steps = Steps(run, rms_norm.planned_gradients(rows, rows, norm.gain, norm.gate, context))
        problem.memo[key] = steps
    return steps


def attend_with_norm(problem: Problem, norm: Norm, merged: bool, gradient: bool, decoding: bool) -> Tensor:
    """The normalised context of a problem in eager mode, [B, T, H·D] if `merged`, else [B, T, H, D].

    `gradient` says whether one of the problem's tensors has one; if none has, the norm's parameters have none here.
    """
    if gradient:
        deterministic = torch.are_deterministic_algorithms_enabled()
        tensors = problem.q, problem.k, problem.v, problem.threshold, problem.mask, norm.gain, norm.gate
        return light_apply(*tensors, problem, norm, merged, deterministic)
    context = decode(problem) if decoding else forward(problem)[0]
    return steps_of(problem, norm, merged).forward(context, *norm)


class NormalisedAttention(torch.autograd.Function):
    """The kernels and their gradients, without the dispatcher between them."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        threshold: Tensor | None,
        mask: Tensor | None,
        gain: Tensor,
        gate: Tensor | None,
        problem: Problem,
        norm: Norm,
        merged: bool,
        deterministic: bool,
    ) -> Tensor:
        context = forward(problem)[0]
        limits = problem.key_lengths, problem.key_starts, problem.seed
        ctx.save_for_backward(q, k, v, threshold, mask, gain, gate, *limits, context, *(problem.numbers or ()))
        options = problem.scale, problem.activation, problem.causal, problem.dropout
        ctx.rest = options, problem.left, problem.right, problem.memo, norm.eps, merged, deterministic
        return steps_of(problem, norm, merged).forward(context, *norm)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return gradients_once(ctx, dy) if torch.is_grad_enabled() else gradients(ctx, dy)


# apply of PyTorch's class in C: the one in Python looks for functorch, which is not there in plain eager mode
light_apply = super(torch.autograd.Function, NormalisedAttention).apply


def gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of all that `NormalisedAttention.forward` takes."""
    q, k, v, threshold, mask, gain, gate, key_lengths, key_starts, seed, context, *numbers = ctx.saved_tensors
    options, left, right, memo, eps, merged, deterministic = ctx.rest
    rest: tuple[Any, ...] = *options, key_starts, left, right, memo, tuple(numbers) or None
    problem = Problem(q, k, v, threshold, key_lengths, mask, None, None, seed, *rest)
    wanted = ctx.needs_input_grad
    d_context, *d_norm = norm_gradients(problem, Norm(gain, gate, eps), merged, context, dy)
    if not any(wanted[:5]):
        return None, None, None, None, None, *d_norm, None, None, None, None
    d_bias = bias_gradient(problem, d_context) if wanted[4] else None
    return *backward(problem, d_context, deterministic), d_bias, *d_norm, None, None, None, None


gradients_once = once_differentiable(gradients)


def norm_gradients(problem: Problem, norm: Norm, merged: bool, context: Tensor, dy: Tensor) -> rms_norm.Gradients:
    """The gradients of the context, the gain and the gate."""
    if not dy.is_contiguous():
        dy = dy.contiguous()
    elif dy.data_ptr() % 16:  # the plan is that of an aligned one
        dy = dy.clone()
    return steps_of(problem, norm, merged).backward(dy, context, *norm)


def by_operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norm: Norm,
    *,
    scale: float,
    activation: str,
    causal: bool,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    window: tuple[int | None, int | None],
    mask: Tensor | None,
    dropout: float,
    seed: int | Tensor,
) -> Tensor:
    """The normalised context [B, T, H, D] of `relu_attention`'s arguments, for compilers and tracers."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    threshold, key_lengths, key_starts = flat(threshold), flat(key_lengths), flat(key_starts)
    tensors = q, k, v, threshold, key_lengths, mask, norm.gain, norm.gate, seed_of(seed, dropout, q)
    options = scale, activation, causal, dropout, key_starts, *window, norm.eps
    return torch.ops.rela.normalised_attention(*tensors, *options, torch.are_deterministic_algorithms_enabled())[0]


def normalised_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    gain: Tensor,
    gate: Tensor | None,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
    eps: float,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """The normalised context [B, T, H, D], and the context [B, H, T, D] for the backward pass."""
    dense = None, None, q.shape[2], k.shape[2], seed
    options: tuple[Any, ...] = scale, activation, causal, dropout, key_starts, left, right
    problem = Problem.of_operator(q, k, v, threshold, key_lengths, mask, *dense, *options)
    norm, context = Norm(gain, gate, eps), forward(problem)[0]
    return steps_of(problem, norm, merged=False).forward(context, *norm), context


def normalised_attention_backward(
    dy: Tensor,
    context: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    gain: Tensor,
    gate: Tensor | None,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
    eps: float,
    deterministic: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, θ, the mask, the gain and the gate; those that there are not are empty."""
    dense = None, None, q.shape[2], k.shape[2], seed
    options: tuple[Any, ...] = scale, activation, causal, dropout, key_starts, left, right
    problem = Problem.of_operator(q, k, v, threshold, key_lengths, mask, *dense, *options)
    if not context.transpose(1, 2).is_contiguous() or context.data_ptr() % 16:  # a compiler may lay it out anew
        context = problem.like_queries(q.dtype).copy_(context)
    d_context, d_gain, d_gate = norm_gradients(problem, Norm(gain, gate, eps), False, context, dy)
    d_bias = bias_gradient(problem, d_context) if wants_bias else q.new_empty(0)
    dq, dk, dv, d_theta = backward(problem, d_context, deterministic)
    assert dq is not None
    d_theta, d_gate = (q.new_empty(0) if x is None else x for x in (d_theta, d_gate))
    return dq, dk, dv, d_theta, d_bias, d_gain, d_gate


def _empty_outputs(q: Tensor, *_options: Any) -> tuple[Tensor, Tensor]:
    B, H, T, D = q.shape
    return torch.empty(B, T, H, D, dtype=q.dtype, device=q.device), empty_heads_last(q)


def _empty_gradients(
    dy: Tensor,
    context: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    gain: Tensor,
    gate: Tensor | None,
    *options: Any,
) -> tuple[Tensor, ...]:
    def like(x: Tensor | None) -> Tensor:
        return q.new_empty(0) if x is None else torch.empty(x.shape, dtype=x.dtype, device=q.device)

    bias = like(mask if options[-1] else None)
    return *map(empty_heads_last, (q, k, v)), like(threshold), bias, like(gain), like(gate)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, seed = inputs[:9]
    *ctx.options, key_starts, ctx.left, ctx.right, ctx.eps, ctx.deterministic = inputs[9:]
    ctx.save_for_backward(*tensors, seed, key_starts, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, dy: Tensor, _context: Any) -> tuple[Tensor | None, ...]:
    *tensors, seed, key_starts, context = ctx.saved_tensors
    threshold, gate, wants_bias = tensors[3], tensors[7], ctx.needs_input_grad[5]
    rest = key_starts, ctx.left, ctx.right, ctx.eps, ctx.deterministic, wants_bias
    dq, dk, dv, d_theta, d_bias, d_gain, d_gate = torch.ops.rela.normalised_attention_backward(
        dy, context, *tensors, seed, *ctx.options, *rest
    )
    attention = dq, dk, dv, None if threshold is None else d_theta, None, d_bias if wants_bias else None
    return *attention, d_gain, None if gate is None else d_gate, *[None] * 10


operator(normalised_attention_backward, _empty_gradients)
differentiable_operator(normalised_attention, _empty_outputs, _setup_context, _backward)
