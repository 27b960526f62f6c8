"""Attention of rectifiers and the norm over its merged heads in one: one node of autograd, one operator, no views.

Apart, the two have a node of autograd each, in Python, and four views between them, with a node each. On short inputs
that takes longer than the kernels (docs/host-time.md), which are those of forward.py, backward.py and rms_norm.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rela.kernels.attention.backward import adds_up_queries, backward
from rela.kernels.attention.bias import bias_gradient
from rela.kernels.attention.decode_norm import decode_with_norm
from rela.kernels.attention.forward import forward
from rela.kernels.attention.functional import flat, seed_of
from rela.kernels.attention.merged_norm import Norm, forward_of
from rela.kernels.attention.operators import empty_heads_last
from rela.kernels.attention.problem import Problem, heads_last, layout_of
from rela.kernels.conversion import planned_with_sums
from rela.kernels.layers import rms_norm
from rela.kernels.registration import differentiable_operator, operator


class GradientSteps(NamedTuple):
    """The kernels for the gradients of a norm after attention, planned once for all problems of the same layouts."""

    alone: Callable[..., rms_norm.Gradients]
    """The gradients of the context, laid out as it is, of the gain and of the gate."""
    joined: Callable[..., tuple[Tensor | None, ...]] | None
    """All gradients, where dQ is added up in float32 and then rounded to 16 bits. One launch then does for dQ and for
    the norm what takes two apart: the norm's clears dQ's sums, and the last one rounds dQ and adds up the norm's."""


def gradients_of(problem: Problem, norm: Norm) -> GradientSteps:
    """The kernels for the gradients of a norm after this problem."""
    key = "gradients of a norm", layout_of(norm.gain), layout_of(norm.gate)
    steps = problem.memo.get(key)
    if steps is None:
        context = problem.like_queries(problem.q.dtype)
        rows = context.transpose(1, 2).flatten(2)
        alone = rms_norm.planned_gradients(rows, rows, norm.gain, norm.gate, context)
        steps = problem.memo[key] = GradientSteps(alone, planned_joined(problem, norm, rows, context))
    return steps


def planned_joined(
    problem: Problem, norm: Norm, rows: Tensor, context: Tensor
) -> Callable[..., tuple[Tensor | None, ...]] | None:
    """`GradientSteps.joined` of a problem, None where dQ is computed in another way."""
    q = problem.q
    if q.dtype == torch.float32 or not q.numel() or not adds_up_queries(problem, deterministic=False):
        return None
    shape, kind, device = q.shape, q.dtype, q.device
    partial = rms_norm.planned_partials(rows, rows, norm.gain, norm.gate, context)
    finish = planned_with_sums(shape, kind, device, partial.parameters, partial.programs, norm.gain.numel())

    def run(problem: Problem, norm: Norm, context: Tensor, dy: Tensor, wants_bias: bool) -> tuple[Tensor | None, ...]:
        sums = heads_last(shape, torch.float32, device)
        d_context, partials = partial.run(dy, context, *norm, sums)
        d_bias = bias_gradient(problem, d_context) if wants_bias else None
        _, dk, dv, d_theta = backward(problem, d_context, False, dq_sums=sums)
        d_gain, d_gate = rms_norm.like_parameters(norm.gain, norm.gate)
        return finish(sums, partials, d_gain, d_gate), dk, dv, d_theta, d_bias, d_gain, d_gate

    return run


Repeated = Callable[[tuple[Any, ...], tuple[Tensor, Tensor | None, float], bool], Tensor]


def repeated(problem_of: Callable[..., Problem], gradient: bool, decoding: bool) -> Repeated:
    """What computes the problem of such tensors with a norm after it, in eager mode; functional.py has it without.

    It takes the tensors, the norm's gain, gate and ε, and whether the result is merged, [B, T, H·D], or [B, T, H, D].
    `gradient` says whether one of the tensors has one; if none has, the norm's parameters have none here.
    """
    if gradient:

        def with_gradient(tensors: tuple[Any, ...], norm: tuple[Any, ...], merged: bool) -> Tensor:
            deterministic = torch.are_deterministic_algorithms_enabled()
            return light_apply(*tensors[:5], norm[0], norm[1], problem_of(*tensors), Norm(*norm), merged, deterministic)

        return with_gradient
    if decoding:
        return lambda tensors, norm, merged: decode_with_norm(problem_of(*tensors), Norm(*norm), merged)

    def without_gradient(tensors: tuple[Any, ...], norm: tuple[Any, ...], merged: bool) -> Tensor:
        problem = problem_of(*tensors)
        return forward_of(problem, Norm(*norm), merged)(forward(problem)[0], *norm)

    return without_gradient


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
        problem.note_layout()
        limits = problem.key_lengths, problem.key_starts, problem.seed
        ctx.save_for_backward(q, k, v, threshold, mask, gain, gate, *limits, context, *(problem.numbers or ()))
        options = problem.scale, problem.activation, problem.causal, problem.dropout
        ctx.rest = options, problem.left, problem.right, problem.memo, norm.eps, deterministic
        return forward_of(problem, norm, merged)(context, *norm)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return gradients_once(ctx, dy) if torch.is_grad_enabled() else gradients(ctx, dy)


# apply of PyTorch's class in C: the one in Python looks for functorch, which is not there in plain eager mode
light_apply = super(torch.autograd.Function, NormalisedAttention).apply


def gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of all that `NormalisedAttention.forward` takes."""
    q, k, v, threshold, mask, gain, gate, key_lengths, key_starts, seed, context, *numbers = ctx.saved_tensors
    options, left, right, memo, eps, deterministic = ctx.rest
    rest: tuple[Any, ...] = *options, key_starts, left, right, memo, tuple(numbers) or None
    problem = Problem(q, k, v, threshold, key_lengths, mask, None, None, seed, *rest).of_saved()
    wanted, norm, context = ctx.needs_input_grad, Norm(gain, gate, eps), as_made(problem, context)
    if not any(wanted[:5]):
        _, *d_norm = gradients_of(problem, norm).alone(aligned(dy), context, *norm)
        return None, None, None, None, None, *d_norm, None, None, None, None
    found = all_gradients(problem, norm, context, dy, deterministic, wanted[4])
    return *found, None, None, None, None


gradients_once = once_differentiable(gradients)


def all_gradients(
    problem: Problem, norm: Norm, context: Tensor, dy: Tensor, deterministic: bool, wants_bias: bool
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, θ, the mask (None unless `wants_bias`), the gain and the gate."""
    dy, steps = aligned(dy), gradients_of(problem, norm)
    if steps.joined is not None and not deterministic:
        return steps.joined(problem, norm, context, dy, wants_bias)
    d_context, *d_norm = steps.alone(dy, context, *norm)
    d_bias = bias_gradient(problem, d_context) if wants_bias else None
    return *backward(problem, d_context, deterministic), d_bias, *d_norm


def as_made(problem: Problem, context: Tensor) -> Tensor:
    """A saved context as `forward` laid it out: a compiler, or a hook of saved tensors, may lay it out anew."""
    if context.transpose(1, 2).is_contiguous() and not context.data_ptr() % 16:
        return context
    return problem.like_queries(context.dtype).copy_(context)


def aligned(dy: Tensor) -> Tensor:
    """A gradient as the plans want it: contiguous, from an address that is a multiple of 16 bytes on."""
    if not dy.is_contiguous():
        return dy.contiguous()
    return dy.clone() if dy.data_ptr() % 16 else dy


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
    return forward_of(problem, norm, merged=False)(context, *norm), context


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
    given = Norm(gain, gate, eps), as_made(problem, context), dy, deterministic, wants_bias
    found = [q.new_empty(0) if x is None else x for x in all_gradients(problem, *given)]
    dq, dk, dv, d_theta, d_bias, d_gain, d_gate = found
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
