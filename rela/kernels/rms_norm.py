"""Fused RMSNorm and gated RMSNorm (equations 4 and 5 of arXiv 2104.07012), forward and backward.

With r = 1 / sqrt(mean(z²) + eps) and n = z · r, the output is y = sigmoid(gate · z) · n · gain. The backward pass
reads z again and recomputes r: one number a row is cheaper to compute than to keep.

Legend: N rows, C width; `i_` index, `o_` offsets, `m_` mask, `b_` block held in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.problem import ceil_div, power_of_2
from rela.kernels.registration import differentiable_operator

ELEMENTS = 2048  # of one block: rows are gathered until a block is about this large
# Programs of the backward pass at most, and so rows of partial sums: eight for each processor of an H200.
PARTIALS = 1056


def rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    """sigmoid(gate · z) · z / sqrt(mean(z²) + eps) · gain over the last dimension; without a gate, no sigmoid.

    Statistics and arithmetic are in float32 whatever z is; the output has z's type. A row of zeros gives zeros and
    finite gradients. Differentiable in z, gain and gate.
    """
    width = z.shape[-1]
    for name, parameter in (("gain", gain), ("gate", gate)):
        if parameter is not None and parameter.shape != (width,):
            raise ValueError(f"{name} has shape {list(parameter.shape)}, but z has width {width}")
    return torch.ops.rela.gated_rms_norm(z, gain, gate, eps)


def gated_rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None, eps: float) -> Tensor:
    y = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    rows, plan = as_rows(z), block_plan(z)
    if z.numel():
        grid = (ceil_div(len(rows), plan["BN"]),)
        forward_kernel[grid](rows, gain.contiguous(), contiguous(gate), y, eps, len(rows), rows.stride(0), **plan)
    return y


@torch.library.custom_op("rela::gated_rms_norm_backward", mutates_args=())
def gated_rms_norm_backward(
    dy: Tensor, z: Tensor, gain: Tensor, gate: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of z, gain and gate; without a gate the last is empty."""
    rows, d_rows, plan = as_rows(z), as_rows(dy), block_plan(z)
    dz = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    if not z.numel():
        return dz, torch.zeros_like(gain), gain.new_zeros(0) if gate is None else torch.zeros_like(gate)
    programs = min(ceil_div(len(rows), plan["BN"]), PARTIALS)
    partials = torch.empty(1 if gate is None else 2, programs, z.shape[-1], dtype=torch.float32, device=z.device)
    backward_kernel[(programs,)](
        d_rows,
        rows,
        gain.contiguous(),
        contiguous(gate),
        dz,
        partials,
        eps,
        len(rows),
        rows.stride(0),
        d_rows.stride(0),
        **plan,
    )
    sums = partials.sum(1)
    d_gate = gain.new_empty(0) if gate is None else sums[1].to(gate.dtype, copy=True)
    return dz, sums[0].to(gain.dtype, copy=True), d_gate


@gated_rms_norm_backward.register_fake
def _(dy, z, gain, gate, eps):
    d_gate = gain.new_empty(0) if gate is None else torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    dz = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    return dz, torch.empty(gain.shape, dtype=gain.dtype, device=gain.device), d_gate


def _empty_rows(z, gain, gate, eps):
    return torch.empty(z.shape, dtype=z.dtype, device=z.device)


def _remember(ctx, inputs, output):
    z, gain, gate, ctx.eps = inputs
    ctx.save_for_backward(z, gain, gate)


def _differentiate(ctx, dy):
    z, gain, gate = ctx.saved_tensors
    dz, d_gain, d_gate = torch.ops.rela.gated_rms_norm_backward(dy, z, gain, gate, ctx.eps)
    return dz, d_gain, None if gate is None else d_gate, None


differentiable_operator(gated_rms_norm, _empty_rows, _remember, _differentiate)


def as_rows(z: Tensor) -> Tensor:
    """z as [N, C] with a contiguous last dimension: a view where there is one, else a copy."""
    rows = z.reshape(-1, z.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def contiguous(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def block_plan(z: Tensor) -> dict[str, int]:
    """The shape of a block and its warps, from the width alone."""
    BC = power_of_2(z.shape[-1])
    BN = max(1, min(16, ELEMENTS // BC))
    return {"C": z.shape[-1], "BN": BN, "BC": BC, "num_warps": min(32, max(4, BN * BC // 256))}


@triton.jit
def inverse_rms(b_z, eps, C: tl.constexpr):
    """1 / sqrt(mean(z²) + eps), [BN, 1]; what lies beyond the width C must be zero."""
    return 1.0 / tl.sqrt(tl.sum(b_z * b_z, axis=1) / C + eps)[:, None]


@triton.jit
def load_block(rows, o_n, o_c, stride, mask):
    return tl.load(rows + o_n[:, None] * stride + o_c[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_parameter(parameter, o_c, C: tl.constexpr):
    return tl.load(parameter + o_c, mask=o_c < C, other=0.0).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=["N"])
def forward_kernel(z, gain, gate, y, eps, N, stride_z, C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr):
    o_n = (tl.program_id(0) * BN + tl.arange(0, BN)).to(tl.int64)
    o_c = tl.arange(0, BC)
    mask = (o_n < N)[:, None] & (o_c < C)[None, :]
    # [BN, BC]
    b_z = load_block(z, o_n, o_c, stride_z, mask)
    b_y = b_z * inverse_rms(b_z, eps, C) * load_parameter(gain, o_c, C)
    if gate is not None:
        b_y *= tl.sigmoid(load_parameter(gate, o_c, C) * b_z)
    tl.store(y + o_n[:, None] * C + o_c[None, :], b_y.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["N"])
def backward_kernel(
    dy, z, gain, gate, dz, partials, eps, N, stride_z, stride_dy, C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr
):
    o_c = tl.arange(0, BC)
    m_c = o_c < C
    b_gain = load_parameter(gain, o_c, C)
    if gate is not None:
        b_gate = load_parameter(gate, o_c, C)
    # [BN, BC]: the rows are summed once, after the loop
    b_dgain = tl.zeros([BN, BC], dtype=tl.float32)
    b_dgate = tl.zeros([BN, BC], dtype=tl.float32)
    for i_n in range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0)):
        o_n = (i_n * BN + tl.arange(0, BN)).to(tl.int64)
        mask = (o_n < N)[:, None] & m_c[None, :]
        # [BN, BC]
        b_z = load_block(z, o_n, o_c, stride_z, mask)
        b_dy = load_block(dy, o_n, o_c, stride_dy, mask)
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
        b_dz = b_r * (b_dn - b_n * (tl.sum(b_dn * b_n, axis=1) / C)[:, None])
        if gate is not None:
            b_dz += b_du * b_gate
        tl.store(dz + o_n[:, None] * C + o_c[None, :], b_dz.to(dz.dtype.element_ty), mask=mask)
    p_partial = partials + tl.program_id(0) * C + o_c
    tl.store(p_partial, tl.sum(b_dgain, axis=0), mask=m_c)
    if gate is not None:
        tl.store(p_partial + tl.num_programs(0) * C, tl.sum(b_dgate, axis=0), mask=m_c)
