"""LayerNorm(x + dropout(change)), the end of a sublayer of a post-norm Transformer: one kernel forward, one backward.

Left to a compiler this takes several times the traffic: sums kept in float32, masks stored. Here the forward pass
reads x and change and writes y; the backward pass reads them again with dy, recomputes the sum, its moments and the
dropout, and writes both gradients. Arithmetic is in float32 whatever the tensors are. Blocks are [BN, P, W], as in
row_blocks.py.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import ceil_div, drop_below
from rela.kernels.attention.scores import dropout_key, kept
from rela.kernels.launch import on_device
from rela.kernels.layers.row_blocks import (
    as_rows,
    block_plan,
    columns,
    enough_programs,
    load_block,
    load_parameter,
    row_mean,
    rows_of,
    store_block,
    store_partial,
)
from rela.kernels.registration import differentiable_operator

PROGRAMS = 3  # of the backward pass, for each processor: as many as the registers of one are enough for


def residual_norm(
    x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, dropout: float, seed: Tensor | None, eps: float
) -> Tensor:
    """LayerNorm(x + dropout(change)) · weight + bias over the last dimension, in the type of `change`.

    `seed` is an int64 scalar on the device, wanted where dropout is above 0; the same seed drops the same elements.
    Differentiable in x, change, weight and bias.
    """
    if x.shape != change.shape or weight.shape != x.shape[-1:] or bias.shape != x.shape[-1:]:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in (x, change, weight, bias))
        raise ValueError(f"x, change, weight and bias have shapes {shapes}; wanted [..., C] twice and [C] twice")
    if dropout and seed is None:
        raise ValueError(f"dropout is {dropout} and there is no seed; wanted one")
    return torch.ops.rela.fused_residual_norm(x, change, weight, bias, dropout, seed if dropout else None, eps)


def fused_residual_norm(
    x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, dropout: float, seed: Tensor | None, eps: float
) -> Tensor:
    y = torch.empty(change.shape, dtype=change.dtype, device=change.device)
    if y.numel():
        x, change, plan = as_rows(x), as_rows(change), block_plan(change)
        with on_device(x):
            residual_forward_kernel[(ceil_div(len(x), plan["BN"]),)](
                x,
                change,
                weight.contiguous(),
                bias.contiguous(),
                y,
                seed,
                *drop_options(dropout),
                eps,
                len(x),
                x.stride(0),
                change.stride(0),
                **plan,
            )
    return y


@torch.library.custom_op("rela::residual_norm_backward", mutates_args=())
def residual_norm_backward(
    dy: Tensor, x: Tensor, change: Tensor, weight: Tensor, dropout: float, seed: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, change, weight and bias."""
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    d_change = torch.empty(change.shape, dtype=change.dtype, device=x.device)
    if not x.numel():
        return dx, d_change, torch.zeros_like(weight), torch.zeros_like(weight)
    dy, x, change, plan = as_rows(dy), as_rows(x), as_rows(change), block_plan(change)
    programs = enough_programs(len(x), plan, PROGRAMS, x.device)
    partials = torch.empty(2, programs, x.shape[-1], dtype=torch.float32, device=x.device)
    with on_device(x):
        residual_backward_kernel[(programs,)](
            dy,
            x,
            change,
            weight.contiguous(),
            dx,
            d_change,
            partials,
            seed,
            *drop_options(dropout),
            eps,
            len(x),
            dy.stride(0),
            x.stride(0),
            change.stride(0),
            **plan,
        )
    d_weight, d_bias = (total.to(weight.dtype, copy=True) for total in partials.sum(1))
    return dx, d_change, d_weight, d_bias


@residual_norm_backward.register_fake
def _(
    dy: Tensor, x: Tensor, change: Tensor, weight: Tensor, dropout: float, seed: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    dx, d_change = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (x, change))
    d_weight, d_bias = (torch.empty(weight.shape, dtype=weight.dtype, device=x.device) for _ in range(2))
    return dx, d_change, d_weight, d_bias


def _empty_rows(
    x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, dropout: float, seed: Tensor | None, eps: float
) -> Tensor:
    return torch.empty(change.shape, dtype=change.dtype, device=change.device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, change, weight, _, ctx.dropout, seed, ctx.eps = inputs
    ctx.save_for_backward(x, change, weight, seed)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, change, weight, seed = ctx.saved_tensors
    gradients = torch.ops.rela.residual_norm_backward(dy, x, change, weight, ctx.dropout, seed, ctx.eps)
    return *gradients, None, None, None


differentiable_operator(fused_residual_norm, _empty_rows, _setup_context, _backward)


def drop_options(dropout: float) -> tuple[int, float]:
    """The rate as the kernels take it, and the factor of what survives."""
    return drop_below(dropout), 1.0 / (1.0 - dropout)


@triton.jit
def normal(b_sum, o_c, eps, C: tl.constexpr):
    """(b_sum - mean) / deviation with zeros beyond the width, and 1 / deviation [BN, 1, 1]."""
    b_centred = tl.where(o_c < C, b_sum - row_mean(b_sum, C), 0.0)
    b_r = 1.0 / tl.sqrt(row_mean(b_centred * b_centred, C) + eps)
    return b_centred * b_r, b_r


@triton.jit(do_not_specialize=["N", "drop_below"])
def residual_forward_kernel(
    x,
    change,
    weight,
    bias,
    y,
    seed,
    drop_below,
    factor,
    eps,
    N,
    stride_x,
    stride_change,
    C: tl.constexpr,
    P: tl.constexpr,
    BN: tl.constexpr,
    W: tl.constexpr,
):
    o_n = rows_of(tl.program_id(0), BN)
    o_c = columns(P, W)
    b_change = load_block(change, o_n, o_c, stride_change, N, C).to(tl.float32)
    b_x = load_block(x, o_n, o_c, stride_x, N, C).to(tl.float32)
    if seed is not None:
        key_0, key_1 = dropout_key(seed, 0, 0)
        b_change = tl.where(kept(key_0, key_1, drop_below, o_n, o_c), b_change * factor, 0.0)
    b_normal, _ = normal(b_x + b_change, o_c, eps, C)
    store_block(y, o_n, o_c, N, b_normal * load_parameter(weight, o_n, o_c, C) + load_parameter(bias, o_n, o_c, C), C)


@triton.jit(do_not_specialize=["N", "drop_below"])
def residual_backward_kernel(
    dy,
    x,
    change,
    weight,
    dx,
    d_change,
    partials,
    seed,
    drop_below,
    factor,
    eps,
    N,
    stride_dy,
    stride_x,
    stride_change,
    C: tl.constexpr,
    P: tl.constexpr,
    BN: tl.constexpr,
    W: tl.constexpr,
):
    o_c = columns(P, W)
    o_n = rows_of(tl.program_id(0), BN)
    b_next_change = load_block(change, o_n, o_c, stride_change, N, C)
    b_next_x = load_block(x, o_n, o_c, stride_x, N, C)
    b_next_dy = load_block(dy, o_n, o_c, stride_dy, N, C)
    b_weight = load_parameter(weight, o_n, o_c, C)
    if seed is not None:
        key_0, key_1 = dropout_key(seed, 0, 0)
    # the rows are summed once, after the loop
    b_dweight = tl.zeros([BN, P, W], dtype=tl.float32)
    b_dbias = tl.zeros([BN, P, W], dtype=tl.float32)
    for i_n in range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0)):
        o_n = rows_of(i_n, BN)
        b_change = b_next_change.to(tl.float32)
        b_x = b_next_x.to(tl.float32)
        b_dy = b_next_dy.to(tl.float32)
        # under way while this block is computed
        o_next = rows_of(i_n + tl.num_programs(0), BN)
        b_next_change = load_block(change, o_next, o_c, stride_change, N, C)
        b_next_x = load_block(x, o_next, o_c, stride_x, N, C)
        b_next_dy = load_block(dy, o_next, o_c, stride_dy, N, C)
        if seed is not None:
            m_kept = kept(key_0, key_1, drop_below, o_n, o_c)
            b_change = tl.where(m_kept, b_change * factor, 0.0)
        b_normal, b_r = normal(b_x + b_change, o_c, eps, C)
        b_dweight += b_dy * b_normal
        b_dbias += b_dy
        b_dn = b_dy * b_weight
        b_dx = b_r * (b_dn - row_mean(b_dn, C) - b_normal * row_mean(b_dn * b_normal, C))
        store_block(dx, o_n, o_c, N, b_dx, C)
        if seed is not None:
            b_dx = tl.where(m_kept, b_dx * factor, 0.0)
        store_block(d_change, o_n, o_c, N, b_dx, C)
    store_partial(partials, o_c, b_dweight, C)
    store_partial(partials + tl.num_programs(0) * C, o_c, b_dbias, C)
