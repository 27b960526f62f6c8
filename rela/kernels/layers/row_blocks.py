"""Blocks of whole rows for norms: as [BN, P, W], so that a warp has a row to itself and need not wait for other warps.

A row of C numbers is P pieces of W = 256, eight numbers for each lane of a warp. Triton lays a block [BN, P, W] out
with one warp a row and the pieces in registers, so sums over a row need no shared memory. Rows of more than 1024
would take too many registers and are spread over all warps.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import ceil_div, power_of_2, processors
from rela.kernels.launch import Launch

PIECE = 256
WIDEST = 1024  # of a row in one warp
ROWS = 4  # of a block, each in its warp
WIDE_ELEMENTS = 2048  # of a block of wider rows: rows are gathered until it is about this large
SUM_ROWS, SUM_COLUMNS = 64, 32  # of a block of partial sums


def as_rows(z: Tensor) -> Tensor:
    """z as [N, C] with a contiguous last dimension: a view where there is one, else a copy."""
    rows = z.reshape(-1, z.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def block_plan(z: Tensor) -> dict[str, int]:
    """The shape of a block and its warps, from the width alone."""
    BC = power_of_2(z.shape[-1])
    if BC <= WIDEST:
        return {"C": z.shape[-1], "P": ceil_div(BC, PIECE), "BN": ROWS, "W": min(BC, PIECE), "num_warps": ROWS}
    BN = max(1, WIDE_ELEMENTS // BC)
    return {"C": z.shape[-1], "P": 1, "BN": BN, "W": BC, "num_warps": min(32, BN * BC // 256)}


def enough_programs(rows: int, plan: dict[str, int], each: int, device: torch.device) -> int:
    """As many programs as `each` processor holds, or as there are blocks; each leaves a row of partial sums behind."""
    return min(ceil_div(rows, plan["BN"]), each * processors(device))


def planned_sums(parameters: int, programs: int, width: int) -> Callable[[Tensor, Tensor, Tensor | None], None]:
    """A function that adds up partial sums [parameters, programs, width], as gradients of one parameter or two.

    One launch, where PyTorch's sum and its conversions to the parameters' types are three.
    """
    grid = ceil_div(width, SUM_COLUMNS), parameters
    start = Launch(sums_kernel, grid, {"C": width, "ROWS": SUM_ROWS, "COLUMNS": SUM_COLUMNS, "num_warps": 4})

    def run(partials: Tensor, first: Tensor, second: Tensor | None) -> None:
        start(partials, first, second, programs)

    return run


@triton.jit
def columns(P: tl.constexpr, W: tl.constexpr):
    """The column of each element, [1, P, W]."""
    return tl.arange(0, P)[None, :, None] * W + tl.arange(0, W)[None, None, :]


@triton.jit
def rows_of(i_n, BN: tl.constexpr):
    """The rows of block i_n, [BN, 1, 1]."""
    return (i_n * BN + tl.arange(0, BN)).to(tl.int64)[:, None, None]


@triton.jit
def load_block(rows, o_n, o_c, stride, N, C: tl.constexpr):
    """[BN, P, W] as it is stored; zeros beyond the last row and column."""
    return tl.load(rows + o_n * stride + o_c, mask=(o_n < N) & (o_c < C), other=0.0)


@triton.jit
def store_block(rows, o_n, o_c, N, b_rows, C: tl.constexpr):
    """Write a block to rows that lie end to end."""
    tl.store(rows + o_n * C + o_c, b_rows.to(rows.dtype.element_ty), mask=(o_n < N) & (o_c < C))


@triton.jit
def load_parameter(parameter, o_n, o_c, C: tl.constexpr):
    """[BN, P, W] in float32, zeros beyond the width: as large as a block, so that it is laid out as one."""
    return tl.load(parameter + o_n * 0 + o_c, mask=(o_n >= 0) & (o_c < C), other=0.0).to(tl.float32)


@triton.jit
def row_mean(b_rows, C: tl.constexpr):
    """[BN, 1, 1]: the mean of each row; what lies beyond the width must be zero."""
    return (tl.sum(tl.sum(b_rows, axis=1), axis=1) / C)[:, None, None]


@triton.jit
def store_partial(partials, o_c, b_rows, C: tl.constexpr):
    """The sum of a program's rows, as its own row of [programs, C]."""
    tl.store(partials + tl.program_id(0) * C + o_c, tl.sum(b_rows, axis=0)[None, :, :], mask=o_c < C)


@triton.jit(do_not_specialize=["programs"])
def sums_kernel(partials, first, second, programs, C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """first = partials[0].sum(0) and second = partials[1].sum(0), rounded once, in an order that is always the same."""
    add_up_columns(partials, first, second, tl.program_id(0), tl.program_id(1), programs, C, ROWS, COLUMNS)


@triton.jit
def add_up_columns(
    partials, first, second, i_c, i_p, programs, C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Block i_c of the columns of the sum of partials[i_p], the gradient of the first parameter or of the second."""
    o_c = i_c * COLUMNS + tl.arange(0, COLUMNS)
    b_sum = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for i in range(0, programs, ROWS):
        o_row = i + tl.arange(0, ROWS)
        inside = (o_row < programs)[:, None] & (o_c < C)[None, :]
        b_sum += tl.load(partials + (i_p * programs + o_row[:, None]) * C + o_c[None, :], mask=inside, other=0.0)
    b_total = tl.sum(b_sum, axis=0)
    if i_p == 0:
        tl.store(first + o_c, b_total.to(first.dtype.element_ty), mask=o_c < C)
    else:
        if second is not None:
            tl.store(second + o_c, b_total.to(second.dtype.element_ty), mask=o_c < C)
