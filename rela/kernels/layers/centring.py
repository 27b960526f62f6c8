"""Packed keys minus a share of their sentence's mean key (rela/attention/centring.py).

One program has a sentence and BC columns. The map is linear and symmetric, so the gradient goes through the same
kernel.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import ceil_div, power_of_2
from rela.kernels.launch import on_device
from rela.kernels.layers.row_blocks import as_rows
from rela.kernels.registration import differentiable_operator

ROWS, COLUMNS = 32, 128


def centre_keys(k: Tensor, cu_keys: Tensor, share: Tensor) -> Tensor:
    """k [M, C] minus `share` times the mean key of its sentence, rows cu_keys[b] : cu_keys[b + 1]; filler is copied."""
    if k.dim() != 2:
        raise ValueError(f"k has {k.dim()} dimensions; wanted 2, [tokens, width]")
    return torch.ops.rela.centred_keys(k, cu_keys, share)


def centred_keys(k: Tensor, cu_keys: Tensor, share: Tensor) -> Tensor:
    out = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    if k.numel():
        rows, width = as_rows(k), k.shape[1]
        BC = min(COLUMNS, power_of_2(width))
        grid = (cu_keys.numel(), ceil_div(width, BC))  # the last row of programs has the filler
        with on_device(rows):
            centring_kernel[grid](rows, cu_keys, share, out, len(rows), rows.stride(0), width, BM=ROWS, BC=BC)
    return out


def _empty(k: Tensor, cu_keys: Tensor, share: Tensor) -> Tensor:
    return torch.empty(k.shape, dtype=k.dtype, device=k.device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.rela.centred_keys(gradient, *ctx.saved_tensors), None, None


differentiable_operator(centred_keys, _empty, _setup_context, _backward)


@triton.jit(do_not_specialize=["M"])
def centring_kernel(k, cu, share, out, M, stride, C, BM: tl.constexpr, BC: tl.constexpr):
    i_b = tl.program_id(0)
    is_filler = i_b == tl.num_programs(0) - 1
    i_first = tl.load(cu + i_b)
    i_end = tl.load(cu + i_b + 1, mask=not is_filler, other=M)
    o_c = tl.program_id(1) * BC + tl.arange(0, BC)
    b_sum = tl.zeros([BC], dtype=tl.float32)
    if not is_filler:
        for i_m in range(i_first, i_end, BM):
            o_m = i_m + tl.arange(0, BM)
            m_k = (o_m < i_end)[:, None] & (o_c < C)[None, :]
            b_sum += tl.sum(
                tl.load(k + o_m.to(tl.int64)[:, None] * stride + o_c, mask=m_k, other=0.0).to(tl.float32), 0
            )
    b_away = b_sum / tl.maximum(i_end - i_first, 1) * tl.load(share)
    for i_m in range(i_first, i_end, BM):
        o_m = i_m + tl.arange(0, BM)
        m_k = (o_m < i_end)[:, None] & (o_c < C)[None, :]
        b_k = tl.load(k + o_m.to(tl.int64)[:, None] * stride + o_c, mask=m_k, other=0.0).to(tl.float32)
        b_k -= b_away[None, :]
        tl.store(out + o_m.to(tl.int64)[:, None] * C + o_c, b_k.to(out.dtype.element_ty), mask=m_k)
