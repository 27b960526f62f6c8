"""Fused RMSNorm and gated RMSNorm (equations 4 and 5 of arXiv 2104.07012), forward and backward.

With r = 1 / sqrt(mean(z²) + eps) and n = z · r, the output is y = sigmoid(gate · z) · n · gain. The backward pass
reads z again and recomputes r: one number a row is cheaper to compute than to keep.
Blocks are [BN, P, W], as in row_blocks.py.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from rela.device import is_plain_eager
from rela.kernels.attention.problem import ceil_div, layout_of, memo_of
from rela.kernels.launch import Launch
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
from rela.kernels.registration import differentiable_operator, operator

PROGRAMS = 4  # of the backward pass, for each processor: as many as the registers of one are enough for


def rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    """sigmoid(gate · z) · z / sqrt(mean(z²) + eps) · gain over the last dimension; without a gate, no sigmoid.

    Statistics and arithmetic are in float32 whatever z is; the output has z's type. A row of zeros gives zeros and
    finite gradients. Differentiable in z, gain and gate.
    """
    if not is_plain_eager(z):
        check_widths(z, gain, gate)
        return torch.ops.rela.gated_rms_norm(z, gain, gate, eps)
    gated = gate is not None and gate.requires_grad
    if torch.is_grad_enabled() and (z.requires_grad or gain.requires_grad or gated):
        check_widths(z, gain, gate)
        return Norm.apply(z, gain, gate, eps)
    return gated_rms_norm(z, gain, gate, eps)


def check_widths(z: Tensor, gain: Tensor, gate: Tensor | None) -> None:
    width = z.shape[-1]
    for name, parameter in (("gain", gain), ("gate", gate)):
        if parameter is not None and parameter.shape != (width,):
            raise ValueError(f"{name} has shape {list(parameter.shape)}, but z has width {width}")


class Norm(torch.autograd.Function):
    """The kernels and their gradients, without the dispatcher between them."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
        ctx.save_for_backward(z, gain, gate)
        ctx.eps = eps
        return gated_rms_norm(z, gain, gate, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        z, gain, gate = ctx.saved_tensors
        dz, d_gain, d_gate = gated_rms_norm_backward(dy, z, gain, gate, ctx.eps)
        return dz, d_gain, None if gate is None else d_gate, None


def gated_rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    memo = memo_of("rms norm", layout_of(z), layout_of(gain), layout_of(gate))
    run = memo.get("forward")
    if run is None:
        run = memo["forward"] = planned(z, gain, gate)
    return run(z, gain, gate, eps)


def planned(z: Tensor, gain: Tensor, gate: Tensor | None) -> Callable[..., Tensor]:
    """A function that normalises z, and all that differ from it in their numbers alone."""
    check_widths(z, gain, gate)
    shape, kind, device = z.shape, z.dtype, z.device
    if not z.numel():
        return lambda *given: torch.empty(shape, dtype=kind, device=device)
    rows = as_rows(z)
    plan = block_plan(rows)
    launch = Launch(forward_kernel, (ceil_div(len(rows), plan["BN"]),), dict(plan))
    strides = torch.empty(shape, device="meta").stride()
    copied, count, stride = rows.data_ptr() != z.data_ptr(), len(rows), rows.stride(0)

    def run(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
        y = torch.empty_strided(shape, strides, dtype=kind, device=device)  # cheaper than torch.empty
        launch(as_rows(z) if copied else z, gain.contiguous(), contiguous(gate), y, eps, count, stride)
        return y

    return run


def gated_rms_norm_backward(
    dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of z, gain and gate; without a gate the last is empty."""
    dz = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    if not z.numel():
        return dz, torch.zeros_like(gain), gain.new_zeros(0) if gate is None else torch.zeros_like(gate)
    rows, d_rows, flat_gain, flat_gate = as_rows(z), as_rows(dy), gain.contiguous(), contiguous(gate)
    memo = memo_of("rms norm", layout_of(rows), layout_of(d_rows), layout_of(flat_gain), layout_of(flat_gate))
    if "backward" not in memo:
        plan = block_plan(rows)
        programs = enough_programs(len(rows), plan, PROGRAMS, z.device)
        memo["backward"] = programs, Launch(backward_kernel, (programs,), dict(plan))
    programs, launch = memo["backward"]
    partials = torch.empty(1 if gate is None else 2, programs, z.shape[-1], dtype=torch.float32, device=z.device)
    launch(d_rows, rows, flat_gain, flat_gate, dz, partials, eps, len(rows), rows.stride(0), d_rows.stride(0))
    sums = partials.sum(1)
    d_gate = gain.new_empty(0) if gate is None else sums[1].to(gate.dtype, copy=True)
    return dz, sums[0].to(gain.dtype, copy=True), d_gate


def _empty_gradients(dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    d_gate = gain.new_empty(0) if gate is None else torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    dz = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    return dz, torch.empty(gain.shape, dtype=gain.dtype, device=gain.device), d_gate


def _empty_rows(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    return torch.empty(z.shape, dtype=z.dtype, device=z.device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, gain, gate, ctx.eps = inputs
    ctx.save_for_backward(z, gain, gate)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    z, gain, gate = ctx.saved_tensors
    dz, d_gain, d_gate = torch.ops.rela.gated_rms_norm_backward(dy, z, gain, gate, ctx.eps)
    return dz, d_gain, None if gate is None else d_gate, None


operator(gated_rms_norm_backward, _empty_gradients)
differentiable_operator(gated_rms_norm, _empty_rows, _setup_context, _backward)


def contiguous(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


@triton.jit
def inverse_rms(b_z, eps, C: tl.constexpr):
    """1 / sqrt(mean(z²) + eps), [BN, 1, 1]; what lies beyond the width C must be zero."""
    return 1.0 / tl.sqrt(row_mean(b_z * b_z, C) + eps)


@triton.jit(do_not_specialize=["N"])
def forward_kernel(
    z, gain, gate, y, eps, N, stride_z, C: tl.constexpr, P: tl.constexpr, BN: tl.constexpr, W: tl.constexpr
):
    o_n = rows_of(tl.program_id(0), BN)
    o_c = columns(P, W)
    b_z = load_block(z, o_n, o_c, stride_z, N, C).to(tl.float32)
    b_y = b_z * inverse_rms(b_z, eps, C) * load_parameter(gain, o_n, o_c, C)
    if gate is not None:
        b_y *= tl.sigmoid(load_parameter(gate, o_n, o_c, C) * b_z)
    store_block(y, o_n, o_c, N, b_y, C)


@triton.jit(do_not_specialize=["N"])
def backward_kernel(
    dy,
    z,
    gain,
    gate,
    dz,
    partials,
    eps,
    N,
    stride_z,
    stride_dy,
    C: tl.constexpr,
    P: tl.constexpr,
    BN: tl.constexpr,
    W: tl.constexpr,
):
    o_n = rows_of(tl.program_id(0), BN)
    o_c = columns(P, W)
    b_gain = load_parameter(gain, o_n, o_c, C)
    if gate is not None:
        b_gate = load_parameter(gate, o_n, o_c, C)
    # the rows are summed once, after the loop
    b_dgain = tl.zeros([BN, P, W], dtype=tl.float32)
    b_dgate = tl.zeros([BN, P, W], dtype=tl.float32)
    b_next_z = load_block(z, o_n, o_c, stride_z, N, C)
    b_next_dy = load_block(dy, o_n, o_c, stride_dy, N, C)
    for i_n in range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0)):
        o_n = rows_of(i_n, BN)
        b_z = b_next_z.to(tl.float32)
        b_dy = b_next_dy.to(tl.float32)
        # under way while this block is computed
        o_next = rows_of(i_n + tl.num_programs(0), BN)
        b_next_z = load_block(z, o_next, o_c, stride_z, N, C)
        b_next_dy = load_block(dy, o_next, o_c, stride_dy, N, C)
        b_r = inverse_rms(b_z, eps, C)
        b_n = b_z * b_r
        b_dn = b_dy * b_gain
        if gate is not None:
            b_open = tl.sigmoid(b_gate * b_z)
            b_du = b_dn * b_n * b_open * (1.0 - b_open)  # of gate · z
            b_dgain += b_dy * b_n * b_open
            b_dgate += b_du * b_z
            b_dn *= b_open
        else:
            b_dgain += b_dy * b_n
        b_dz = b_r * (b_dn - b_n * row_mean(b_dn * b_n, C))
        if gate is not None:
            b_dz += b_du * b_gate
        store_block(dz, o_n, o_c, N, b_dz, C)
    store_partial(partials, o_c, b_dgain, C)
    if gate is not None:
        store_partial(partials + tl.num_programs(0) * C, o_c, b_dgate, C)
