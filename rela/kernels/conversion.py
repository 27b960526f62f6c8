"""A sum in float32 as numbers of 16 bits, by a launch that costs the host less than PyTorch's conversion.

The same launch can add up the partial sums of a norm's gradients: both end the backward pass of attention with a norm.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.launch import Launch
from rela.kernels.layers.row_blocks import SUM_COLUMNS, SUM_ROWS, add_up_columns

BLOCK = 4096  # numbers of one program, sixteen a thread


def planned(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function from float32 tensors [B, H, N, D] that lie in memory as [B, N, H, D] to the same in `dtype`."""
    _, H, N, D = shape
    strides = N * H * D, D, H * D, 1
    if dtype == torch.float32 or not shape.numel():
        return lambda x: x.to(dtype)
    start = Launch(convert_kernel, (-(-shape.numel() // BLOCK),), {"n": shape.numel(), "BLOCK": BLOCK, "num_warps": 8})

    def run(x: Tensor) -> Tensor:
        out = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        start(out, x)
        return out

    return run


Sums = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""What converts its first argument, and adds up the second, partial sums, as one gradient or two."""


def planned_with_sums(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, parameters: int, programs: int, width: int
) -> Sums:
    """`planned` for 16 bits and some numbers, and `row_blocks.planned_sums`, in one launch."""
    _, H, N, D = shape
    strides = N * H * D, D, H * D, 1
    blocks, column_blocks = -(-shape.numel() // BLOCK), -(-width // SUM_COLUMNS)
    sizes = {"BLOCK": BLOCK, "C": width, "ROWS": SUM_ROWS, "COLUMNS": SUM_COLUMNS, "num_warps": 8}
    constants = {"n": shape.numel(), "column_blocks": column_blocks, **sizes}
    start = Launch(convert_and_add_up_kernel, (blocks + parameters * column_blocks,), constants)

    def run(x: Tensor, partials: Tensor, first: Tensor, second: Tensor | None) -> Tensor:
        out = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        start(out, x, partials, first, second, programs)
        return out

    return run


@triton.jit
def convert_kernel(out, x, n, BLOCK: tl.constexpr):
    convert_block(out, x, tl.program_id(0), n, BLOCK)


@triton.jit
def convert_block(out, x, i_n, n, BLOCK: tl.constexpr):
    """Block i_n of n numbers."""
    o_n = i_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + o_n, tl.load(x + o_n, mask=o_n < n).to(out.dtype.element_ty), mask=o_n < n)


@triton.jit(do_not_specialize=["programs"])
def convert_and_add_up_kernel(
    out,
    x,
    partials,
    first,
    second,
    programs,
    n,
    column_blocks,
    BLOCK: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The first programs add up, one for each block of columns of a parameter; the others convert."""
    adding = column_blocks if second is None else 2 * column_blocks
    i = tl.program_id(0)
    if i < adding:
        add_up_columns(partials, first, second, i % column_blocks, i // column_blocks, programs, C, ROWS, COLUMNS)
    else:
        convert_block(out, x, i - adding, n, BLOCK)
