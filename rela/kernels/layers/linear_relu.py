"""relu(x Wᵀ + b), the first half of a feed-forward layer: the product's own epilogue forward, one kernel backward.

cuBLAS adds the bias and rectifies before a product is written. The backward pass sets the gradient to zero where the
output was zero and takes the bias' gradient, its sum over rows, in one reading.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import ceil_div, power_of_2, processors
from rela.kernels.launch import on_device
from rela.kernels.layers.row_blocks import as_rows
from rela.kernels.registration import differentiable_operator


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(x weightᵀ + bias) for x [N, C], weight [F, C] and bias [F] of one type; differentiable in all three."""
    if x.ndim != 2 or weight.shape[1:] != x.shape[1:] or bias.shape != weight.shape[:1]:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in (x, weight, bias))
        raise ValueError(f"x, weight and bias have shapes {shapes}; wanted [N, C], [F, C] and [F]")
    return torch.ops.rela.fused_linear_relu(x, weight, bias)


def fused_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch._addmm_activation(bias, x, weight.mT)


@torch.library.custom_op("rela::relu_backward", mutates_args=())
def relu_backward(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """dy where y is above zero, [N, F], and its sum over rows, [F]."""
    (N, F), dx = y.shape, torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if not y.numel():
        return dx, y.new_zeros(F)
    dy, y = as_rows(dy), as_rows(y)
    BF = min(power_of_2(F), 256)
    columns = ceil_div(F, BF)
    BN = 8192 // BF
    groups = min(ceil_div(N, BN), max(4 * processors(y.device) // columns, 1))
    partials = torch.empty(groups, F, dtype=torch.float32, device=y.device)
    with on_device(y):
        relu_backward_kernel[(columns, groups)](
            dy, y, dx, partials, N, dy.stride(0), y.stride(0), F, BN, BF, num_warps=8
        )
    return dx, partials.sum(0).to(y.dtype)


@relu_backward.register_fake
def _(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty(y.shape, dtype=y.dtype, device=y.device), y.new_empty(y.shape[1])


def _empty_rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2], output)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, y = ctx.saved_tensors
    d_product, d_bias = torch.ops.rela.relu_backward(dy, y)
    return d_product @ weight, d_product.mT @ x, d_bias


differentiable_operator(fused_linear_relu, _empty_rows, _setup_context, _backward)


@triton.jit(do_not_specialize=["N"])
def relu_backward_kernel(
    dy, y, dx, partials, N, stride_dy, stride_y, F: tl.constexpr, BN: tl.constexpr, BF: tl.constexpr
):
    o_f = tl.program_id(0) * BF + tl.arange(0, BF)
    b_sum = tl.zeros([BN, BF], dtype=tl.float32)
    for i_n in range(tl.program_id(1), tl.cdiv(N, BN), tl.num_programs(1)):
        o_n = (i_n * BN + tl.arange(0, BN)).to(tl.int64)
        mask = (o_n < N)[:, None] & (o_f < F)[None, :]
        # [BN, BF]
        b_y = tl.load(y + o_n[:, None] * stride_y + o_f[None, :], mask=mask, other=0.0)
        b_dy = tl.load(dy + o_n[:, None] * stride_dy + o_f[None, :], mask=mask, other=0.0)
        b_dx = tl.where(b_y <= 0.0, 0.0, b_dy)
        b_sum += b_dx.to(tl.float32)
        tl.store(dx + o_n[:, None] * F + o_f[None, :], b_dx, mask=mask)
    tl.store(partials + tl.program_id(1) * F + o_f, tl.sum(b_sum, axis=0), mask=o_f < F)
