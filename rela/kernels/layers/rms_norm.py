"""Fused RMSNorm and gated RMSNorm (equations 4 and 5 of arXiv 2104.07012), forward and backward.

With r = 1 / sqrt(mean(z²) + eps) and n = z · r, the output is y = sigmoid(gate · z) · n · gain. The backward pass
reads z again and recomputes r: one number a row is cheaper to compute than to keep.
Blocks are [BN, P, W], as in row_blocks.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
    planned_sums,
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
        return light_apply(z, gain, gate, eps)
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
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return gradients_once(ctx, dy) if torch.is_grad_enabled() else gradients(ctx, dy)


# apply of PyTorch's class in C: the one in Python looks for functorch, which is not there in plain eager mode
light_apply = super(torch.autograd.Function, Norm).apply


def gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of all that `Norm.forward` takes."""
    z, gain, gate = ctx.saved_tensors
    return *norm_gradients(dy, z, gain, gate, ctx.eps), None


gradients_once = once_differentiable(gradients)


def gated_rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    memo = memo_of("rms norm", layout_of(z), layout_of(gain), layout_of(gate))
    run = memo.get("forward")
    if run is None:
        run = memo["forward"] = planned(z, gain, gate)
    return run(z, gain, gate, eps)


def planned(
    z: Tensor, gain: Tensor, gate: Tensor | None, shape: tuple[int, ...] | None = None
) -> Callable[..., Tensor]:
    """A function that normalises z, and all that differ from it in their numbers alone.

    Its output is contiguous and has the given `shape`, which is that of z by default.
    """
    check_widths(z, gain, gate)
    kind, device = z.dtype, z.device
    shape = tuple(z.shape) if shape is None else shape
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
    dz, d_gain, d_gate = norm_gradients(dy, z, gain, gate, eps)
    return dz, d_gain, gain.new_empty(0) if d_gate is None else d_gate


Gradients = tuple[Tensor, Tensor, Tensor | None]
"""Of z, gain and gate; the last is None without a gate."""


def norm_gradients(dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Gradients:
    memo = memo_of("rms norm", layout_of(z), layout_of(gain), layout_of(gate))
    layout = "backward", dy.stride(), dy.dtype, dy.data_ptr() % 16
    run = memo.get(layout)
    if run is None:
        run = memo[layout] = planned_gradients(dy, z, gain, gate)
    return run(dy, z, gain, gate, eps)


def planned_gradients(
    dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, like: Tensor | None = None
) -> Callable[..., Gradients]:
    """A function for the gradients of z, gain and gate, and of all that differ from them in their numbers alone.

    That of z is contiguous, or has the shape and strides of `like`, whose memory must be that of contiguous rows.
    """
    shape, kind, device = z.shape if like is None else like.shape, z.dtype, z.device
    if not z.numel():
        return lambda dy, z, gain, gate, eps: (
            torch.empty(shape, dtype=kind, device=device),
            torch.zeros_like(gain),
            None if gate is None else torch.zeros_like(gate),
        )
    partial = planned_partials(dy, z, gain, gate, like)
    add_up = planned_sums(partial.parameters, partial.programs, gain.numel())

    def run(dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Gradients:
        dz, partials = partial.run(dy, z, gain, gate, eps)
        d_gain, d_gate = like_parameters(gain, gate)
        add_up(partials, d_gain, d_gate)
        return dz, d_gain, d_gate

    return run


class Partial(NamedTuple):
    """A function for the gradient of z, and for partial sums [parameters, programs, C] of those of gain and gate."""

    run: Callable[..., tuple[Tensor, Tensor]]
    """Of dy, z, gain, gate, ε and, at will, a float32 tensor as large as z: it is filled with zeros."""
    parameters: int
    programs: int


def planned_partials(dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, like: Tensor | None = None) -> Partial:
    """The first launch of `planned_gradients`, for some rows."""
    shape, kind, device, C = z.shape if like is None else like.shape, z.dtype, z.device, gain.numel()
    rows, d_rows = as_rows(z), as_rows(dy)
    plan = block_plan(rows)
    programs = enough_programs(len(rows), plan, PROGRAMS, device)
    # a kernel's variant knows whether there is something to clear
    start, start_and_clear = (Launch(backward_kernel, (programs,), dict(plan)) for _ in range(2))
    strides = torch.empty(shape, device="meta").stride() if like is None else like.stride()
    copied, d_copied = rows.data_ptr() != z.data_ptr(), d_rows.data_ptr() != dy.data_ptr()
    numbers = len(rows), rows.stride(0), d_rows.stride(0)
    parameters = 1 if gate is None else 2
    size, steps = (parameters, programs, C), (programs * C, C, 1)

    def run(
        dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float, cleared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        dz = torch.empty_strided(shape, strides, dtype=kind, device=device)
        partials = torch.empty_strided(size, steps, dtype=torch.float32, device=device)
        dy, z = as_rows(dy) if d_copied else dy, as_rows(z) if copied else z
        launch = start if cleared is None else start_and_clear
        launch(dy, z, gain.contiguous(), contiguous(gate), dz, partials, cleared, eps, *numbers)
        return dz, partials

    return Partial(run, parameters, programs)


def like_parameters(gain: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Unwritten gradients of the parameters; `torch.empty_strided` is cheaper than `torch.empty`."""
    d_gain, d_gate = (
        None if x is None else torch.empty_strided(x.shape, (1,), dtype=x.dtype, device=x.device) for x in (gain, gate)
    )
    assert d_gain is not None
    return d_gain, d_gate


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
    cleared,
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
        if cleared is not None:
            store_block(cleared, o_n, o_c, N, tl.zeros([BN, P, W], dtype=tl.float32), C)
    store_partial(partials, o_c, b_dgain, C)
    if gate is not None:
        store_partial(partials + tl.num_programs(0) * C, o_c, b_dgate, C)
