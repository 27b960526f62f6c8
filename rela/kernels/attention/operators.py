"""The kernels as PyTorch operators, so that fake tensors and torch.compile know them.

They are opaque operators rather than `triton_op`s: the tile rules may look at sizes without making torch.compile guard
on them, so changing lengths never recompile a model. In eager mode functional.py does without the dispatcher.
"""

from typing import Any

import torch
from torch import Tensor

from rela.kernels.attention.backward import backward
from rela.kernels.attention.bias import bias_gradient
from rela.kernels.attention.decode import decode
from rela.kernels.attention.forward import forward
from rela.kernels.attention.problem import Problem
from rela.kernels.attention.simplex import simplex_forward
from rela.kernels.attention.simplex_backward import simplex_backward
from rela.kernels.registration import differentiable_operator, operator


def relu_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> Tensor:
    packed = cu_q, cu_k, max_q, max_k
    options: tuple[Any, ...] = seed, scale, activation, causal, dropout, key_starts, left, right
    return forward(Problem.of_operator(q, k, v, threshold, key_lengths, mask, *packed, *options))[0]


def relu_attention_statistics(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dense = None, None, q.shape[2], k.shape[2], None
    options: tuple[Any, ...] = scale, activation, causal, 0.0, key_starts, left, right
    problem = Problem.of_operator(q, k, v, threshold, key_lengths, mask, *dense, *options)
    out, statistics = forward(problem, statistics=True)
    assert statistics is not None
    nonzeros, argmax, largest = statistics
    return out, nonzeros, argmax, largest


def relu_attention_backward(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
    deterministic: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    packed = cu_q, cu_k, max_q, max_k
    options: tuple[Any, ...] = seed, scale, activation, causal, dropout, key_starts, left, right
    problem = Problem.of_operator(q, k, v, threshold, key_lengths, mask, *packed, *options)
    d_bias = bias_gradient(problem, d_out) if wants_bias else q.new_empty(0)
    dq, dk, dv, d_theta = backward(problem, d_out, deterministic)
    assert dq is not None
    return dq, dk, dv, q.new_empty(0) if d_theta is None else d_theta, d_bias


def relu_attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    left: int | None,
    scale: float,
    activation: str,
    causal: bool,
) -> Tensor:
    dense = None, None, q.shape[2], k.shape[2], None
    options: tuple[Any, ...] = scale, activation, causal, 0.0, key_starts, left, None
    return decode(Problem.of_operator(q, k, v, threshold, key_lengths, None, *dense, *options))


def simplex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
) -> tuple[Tensor, Tensor]:
    packed = cu_q, cu_k, max_q, max_k
    options: tuple[Any, ...] = seed, scale, activation, causal, dropout, key_starts, left, right
    return simplex_forward(Problem.of_operator(q, k, v, None, key_lengths, mask, *packed, *options))


def simplex_attention_backward(
    d_out: Tensor,
    levels: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    seed: Tensor | None,
    scale: float,
    activation: str,
    causal: bool,
    dropout: float,
    key_starts: Tensor | None,
    left: int | None,
    right: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    packed = cu_q, cu_k, max_q, max_k
    options: tuple[Any, ...] = seed, scale, activation, causal, dropout, key_starts, left, right
    problem = Problem.of_operator(q, k, v, None, key_lengths, mask, *packed, *options)
    return simplex_backward(problem, levels, d_out)


def empty_heads_last(x: Tensor) -> Tensor:
    """An empty tensor of x's shape that lies in memory as [B, rows, heads, D], as the kernels write it."""
    B, H, N, D = x.shape
    return torch.empty(B, N, H, D, dtype=x.dtype, device=x.device).transpose(1, 2)


def _empty_context(q: Tensor, *_options: Any) -> Tensor:
    return empty_heads_last(q)


def _empty_statistics(q: Tensor, *_options: Any) -> tuple[Tensor, ...]:
    rows = q.shape[:3]
    counts = (torch.empty(rows, dtype=torch.int32, device=q.device) for _ in range(2))
    return empty_heads_last(q), *counts, torch.empty(rows, dtype=torch.float32, device=q.device)


def _empty_gradients(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    mask: Tensor | None,
    *options: Any,
) -> tuple[Tensor, ...]:
    d_theta = q.new_empty(0) if threshold is None else torch.empty_like(threshold)
    d_bias = torch.empty(mask.shape, dtype=mask.dtype, device=q.device) if options[-1] and mask is not None else None
    return (
        empty_heads_last(q),
        empty_heads_last(k),
        empty_heads_last(v),
        d_theta,
        q.new_empty(0) if d_bias is None else d_bias,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.max_q, ctx.max_k, seed = inputs[:11]
    *ctx.options, key_starts, ctx.left, ctx.right, ctx.deterministic = inputs[11:]
    ctx.save_for_backward(*tensors, seed, key_starts)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed, key_starts = ctx.saved_tensors
    limits = key_starts, ctx.left, ctx.right, ctx.deterministic
    wants_bias = ctx.needs_input_grad[5]
    dq, dk, dv, d_theta, d_bias = torch.ops.rela.relu_attention_backward(
        d_out, *tensors, ctx.max_q, ctx.max_k, seed, *ctx.options, *limits, wants_bias
    )
    bias = None, d_bias if wants_bias else None
    return dq, dk, dv, None if tensors[3] is None else d_theta, *bias, *[None] * 13


def _setup_statistics_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *ctx.options, key_starts, ctx.left, ctx.right, ctx.deterministic = inputs[6:]
    ctx.save_for_backward(*inputs[:6], key_starts)
    ctx.mark_non_differentiable(*output[1:])


def _backward_statistics(ctx: Any, d_out: Tensor, *_statistics: Any) -> tuple[Tensor | None, ...]:
    q, k, v, threshold, key_lengths, mask, key_starts = ctx.saved_tensors
    dense = None, None, q.shape[2], k.shape[2], None
    wants_bias = ctx.needs_input_grad[5]
    dq, dk, dv, d_theta, d_bias = torch.ops.rela.relu_attention_backward(
        d_out,
        q,
        k,
        v,
        threshold,
        key_lengths,
        mask,
        *dense,
        *ctx.options,
        0.0,
        key_starts,
        ctx.left,
        ctx.right,
        ctx.deterministic,
        wants_bias,
    )
    return dq, dk, dv, None if threshold is None else d_theta, None, d_bias if wants_bias else None, *[None] * 7


def _empty_projection(q: Tensor, *_options: Any) -> tuple[Tensor, Tensor]:
    return empty_heads_last(q), torch.empty(2, *q.shape[:3], dtype=torch.float32, device=q.device)


def _empty_simplex_gradients(
    d_out: Tensor, levels: Tensor, q: Tensor, k: Tensor, v: Tensor, *_options: Any
) -> tuple[Tensor, ...]:
    return empty_heads_last(q), empty_heads_last(k), empty_heads_last(v)


def _setup_simplex_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.max_q, ctx.max_k, seed = inputs[:10]
    *ctx.options, key_starts, ctx.left, ctx.right = inputs[10:]
    ctx.save_for_backward(*tensors, seed, key_starts, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward_simplex(ctx: Any, d_out: Tensor, _levels: Any) -> tuple[Tensor | None, ...]:
    *tensors, seed, key_starts, levels = ctx.saved_tensors
    options = ctx.max_q, ctx.max_k, seed, *ctx.options, key_starts, ctx.left, ctx.right
    gradients = torch.ops.rela.simplex_attention_backward(d_out, levels, *tensors, *options)
    return *gradients, *[None] * 14


operator(simplex_attention_backward, _empty_simplex_gradients)
differentiable_operator(simplex_attention, _empty_projection, _setup_simplex_context, _backward_simplex)
operator(relu_attention_backward, _empty_gradients)
operator(relu_attention_decode, _empty_context)
differentiable_operator(relu_attention, _empty_context, _setup_context, _backward)
differentiable_operator(relu_attention_statistics, _empty_statistics, _setup_statistics_context, _backward_statistics)
