"""The parts of a decoding step beside attention: embedding, residual sum with layer norm, and products for few rows.

A step has few rows, so the number of kernels costs more than what they compute. `residual_norm` is one kernel for
r · y + bias + residual and the layer norm after it, where r is the 1/RMS that attention has not applied yet (see
step_attention.py). `norm_linear` is a product for few rows in which every program computes sum and norm of its own
input. `thin_linear` writes partial sums that the next kernel adds up, and can multiply by r itself. For few rows a
layer is eight kernels.

A kernel loads parameters before anything that depends on the kernel in front: they come from memory each step, and that
takes longer than the rest of the kernel.

Letters beside those of `rela.attention`: F input features and N output features of a product.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import PRECISION, ceil_div, power_of_2
from rela.kernels.early_launch import early, let_next_start, wait_for_results

# Rows and output features of one program of a product: for few rows, and for more of them.
FEW_ROWS, MANY_ROWS = (16, 32), (64, 64)


@dataclass(frozen=True)
class SublayerOutput:
    """What a sublayer adds to the residual: r · y + bias, where r is 1/RMS from the squares of each row, or 1 without.

    y is [R, C], or [parts, R, C] still to be summed; squares are [R, H · G], to be summed too.
    """

    y: Tensor
    bias: Tensor
    squares: Tensor | None = None
    epsilon: float = 0.0


@dataclass(frozen=True)
class Norm:
    """A layer norm's parameters; `first` says that it stands before the next sublayer, outside the residual."""

    weight: Tensor
    bias: Tensor
    epsilon: float
    first: bool


def embed(
    tokens: Tensor,
    active: Tensor,
    lengths: Tensor,
    table: Tensor,
    positions: Tensor,
    scale: float,
    norm: Norm | None,
    residual: Tensor,
    x: Tensor,
    *,
    beam: int,
    in_chain: bool = False,
) -> None:
    """Write √C · table[token] + positions[length] for the last token of every row; zero in padding rows.

    tokens are [B, K], active [A] is the sentence of each group of K rows, -1 for padding. residual [R, C] is float32;
    x [R, C] is the first product's input, normed if `norm`.
    """
    rows, width = x.shape
    embed_kernel[(rows,)](
        tokens,
        active,
        lengths,
        table,
        positions,
        scale,
        *norm_arguments(norm),
        residual,
        x,
        BEAM=beam,
        C=width,
        BC=power_of_2(width),
        num_warps=4,
        **early(in_chain, x, first=True),
    )


@triton.jit
def embed_kernel(
    tokens,
    active,
    lengths,
    table,
    positions,
    scale,
    norm_weight,
    norm_bias,
    epsilon,
    residual,
    x,
    BEAM: tl.constexpr,
    C: tl.constexpr,
    BC: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_r = tl.program_id(0)
    o_c = tl.arange(0, BC)
    m_c = o_c < C
    i_b = tl.load(active + i_r // BEAM)
    b_x = tl.zeros([BC], dtype=tl.float32)
    if i_b >= 0:
        token = tl.load(tokens + i_b * BEAM + i_r % BEAM).to(tl.int64)
        position = tl.load(lengths + i_b).to(tl.int64)
        b_x = tl.load(table + token * C + o_c, mask=m_c, other=0.0).to(tl.float32) * scale
        b_x += tl.load(positions + position * C + o_c, mask=m_c, other=0.0)
    tl.store(residual + i_r * C + o_c, b_x, mask=m_c)
    if norm_weight is not None:
        b_weight, b_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
        b_mean = tl.sum(b_x[None, :], axis=1) / C
        b_x = tl.reshape(layer_norm(b_x[None, :], b_mean, m_c[None, :], b_weight, b_bias, epsilon, C), [BC])
    tl.store(x + i_r * C + o_c, b_x.to(x.dtype.element_ty), mask=m_c)


def residual_norm(
    residual: Tensor,
    output: SublayerOutput | None,
    norm: Norm,
    new_residual: Tensor,
    x: Tensor,
    *,
    in_chain: bool = False,
) -> None:
    """Write the layer norm of residual + output to x, and the sum (pre-norm) or x (post-norm) to new_residual.

    residual and new_residual, float32 [R, C], may be the same tensor.
    """
    rows, width = x.shape
    sums = 1 if output is None or output.squares is None else output.squares.size(1)
    residual_norm_kernel[(rows,)](
        residual,
        *output_arguments(output),
        *norm_arguments(norm),
        new_residual,
        x,
        rows,
        C=width,
        BC=power_of_2(width),
        PARTS=parts_of(output),
        SUMS=sums,
        NORM_FIRST=norm.first,
        num_warps=4,
        **early(in_chain, x),
    )


@triton.jit(do_not_specialize=["R"])
def residual_norm_kernel(
    residual,
    y,
    output_bias,
    squares,
    rms_epsilon,
    norm_weight,
    norm_bias,
    epsilon,
    new_residual,
    x,
    R,
    C: tl.constexpr,
    BC: tl.constexpr,
    PARTS: tl.constexpr,
    SUMS: tl.constexpr,
    NORM_FIRST: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    o_r = tl.program_id(0) + tl.arange(0, 1)
    o_c = tl.arange(0, BC)
    b_weight, b_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
    b_output_bias = load_row(output_bias, o_c, C)
    wait_for_results(EARLY)
    mask = (o_r < R)[:, None] & (o_c < C)[None, :]
    b_sum, b_mean = add_output(residual, y, b_output_bias, squares, rms_epsilon, o_r, o_c, mask, R, C, PARTS, SUMS)
    b_x = layer_norm(b_sum, b_mean, mask, b_weight, b_bias, epsilon, C)
    o_out = o_r[:, None] * C + o_c[None, :]
    tl.store(new_residual + o_out, b_sum if NORM_FIRST else b_x, mask=mask)
    tl.store(x + o_out, b_x.to(x.dtype.element_ty), mask=mask)


def thin_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    squares: Tensor | None = None,
    epsilon: float = 0.0,
    *,
    relu: bool = False,
    in_chain: bool = False,
) -> None:
    """Write x [R, F] times weight [N, F] transposed to out [R, N], or partial sums over F to out [parts, R, N].

    With squares [R, H · G] every row is divided by its root mean square, √(Σ squares / F + epsilon).
    """
    parts = out.size(0) if out.dim() == 3 else 1
    (rows, inner), width = x.shape, weight.size(0)
    BM, BN = FEW_ROWS if rows <= 2 * FEW_ROWS[0] else MANY_ROWS
    BF = min(512, power_of_2(inner))
    sums = 1 if squares is None else squares.size(1)
    thin_linear_kernel[(ceil_div(width, BN), ceil_div(rows, BM), parts)](
        x,
        weight,
        bias,
        out,
        squares,
        epsilon,
        rows,
        width,
        F=inner,
        SUMS=sums,
        BSUMS=power_of_2(sums),
        LENGTH=ceil_div(inner, parts * BF) * BF,
        BM=BM,
        BN=BN,
        BF=BF,
        RELU=relu,
        PRECISION=PRECISION,
        num_warps=4,
        num_stages=1,
        **early(in_chain, x),
    )


@triton.jit(do_not_specialize=["R"])
def thin_linear_kernel(
    x,
    weight,
    bias,
    out,
    squares,
    epsilon,
    R,
    N,
    F: tl.constexpr,
    SUMS: tl.constexpr,
    BSUMS: tl.constexpr,
    LENGTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BF: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_part = tl.program_id(2)
    o_n = tl.program_id(0) * BN + tl.arange(0, BN)
    o_r = tl.program_id(1) * BM + tl.arange(0, BM)
    o_f = tl.arange(0, BF)
    first = i_part * LENGTH
    b_w = load_tile(weight, o_n, first + o_f, N, F)
    b_bias = load_vector(bias, o_n, N)
    wait_for_results(EARLY)
    b_x = load_tile(x, o_r, first + o_f, R, F)
    if squares is not None:
        b_squares = load_tile(squares, o_r, tl.arange(0, BSUMS), R, SUMS)
    b_out = tl.dot(b_x, tl.trans(b_w), input_precision=PRECISION)
    for i_f in range(first + BF, tl.minimum(first + LENGTH, F), BF):
        b_w = load_tile(weight, o_n, i_f + o_f, N, F)
        b_out = tl.dot(load_tile(x, o_r, i_f + o_f, R, F), tl.trans(b_w), b_out, input_precision=PRECISION)
    if squares is not None:
        b_out *= (1.0 / tl.sqrt(tl.sum(b_squares, axis=1) / F + epsilon))[:, None]
    store_outputs(b_out, b_bias, out + i_part * R * N, o_r, o_r < R, o_n, N, RELU)


@triton.jit
def load_tile(matrix, o_row, o_column, rows, COLUMNS: tl.constexpr):
    """Elements of a matrix [rows, COLUMNS], zero beyond its edges."""
    mask = (o_row < rows)[:, None] & (o_column < COLUMNS)[None, :]
    return tl.load(matrix + o_row[:, None] * COLUMNS + o_column[None, :], mask=mask, other=0.0)


def norm_linear(
    residual: Tensor,
    output: SublayerOutput,
    norm: Norm,
    new_residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    out: Tensor,
    *,
    relu: bool = False,
    in_chain: bool = False,
) -> None:
    """`residual_norm` and the product after it in one kernel, for few rows; new_residual must not be residual.

    The sublayer output has no squares: `thin_linear` has already multiplied it by 1/RMS.
    """
    assert output.squares is None
    rows, width = residual.shape
    BM, BN = FEW_ROWS
    BR = min(BM, power_of_2(rows))
    warps = 4 if BR <= 8 else 8  # more rows need the registers of more warps
    norm_linear_kernel[(ceil_div(weight.size(0), BN), ceil_div(rows, BR))](
        residual,
        output.y,
        output.bias,
        *norm_arguments(norm),
        new_residual,
        weight,
        bias,
        out,
        rows,
        weight.size(0),
        C=width,
        BC=power_of_2(width),
        PARTS=parts_of(output),
        NORM_FIRST=norm.first,
        BR=BR,
        COPIES=BM // BR,
        BN=BN,
        RELU=relu,
        PRECISION=PRECISION,
        num_warps=warps,
        **early(in_chain, residual),
    )


@triton.jit(do_not_specialize=["R"])
def norm_linear_kernel(
    residual,
    y,
    output_bias,
    norm_weight,
    norm_bias,
    epsilon,
    new_residual,
    weight,
    bias,
    out,
    R,
    N,
    C: tl.constexpr,
    BC: tl.constexpr,
    PARTS: tl.constexpr,
    NORM_FIRST: tl.constexpr,
    BR: tl.constexpr,
    COPIES: tl.constexpr,
    BN: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    o_n = tl.program_id(0) * BN + tl.arange(0, BN)
    o_r = tl.program_id(1) * BR + tl.arange(0, BR)
    o_c = tl.arange(0, BC)
    b_w = load_tile(weight, o_n, o_c, N, C)
    b_bias = load_vector(bias, o_n, N)
    b_norm_weight, b_norm_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
    b_output_bias = load_row(output_bias, o_c, C)
    wait_for_results(EARLY)
    mask = (o_r < R)[:, None] & (o_c < C)[None, :]
    # [BR, BC]
    b_sum, b_mean = add_output(residual, y, b_output_bias, None, 0.0, o_r, o_c, mask, R, C, PARTS, 1)
    b_x = layer_norm(b_sum, b_mean, mask, b_norm_weight, b_norm_bias, epsilon, C)
    if tl.program_id(0) == 0:
        tl.store(new_residual + o_r[:, None] * C + o_c[None, :], b_sum if NORM_FIRST else b_x, mask=mask)
    # tl.dot needs 16 rows: each of the BR is repeated COPIES times, so that norms are computed for BR alone
    b_rows = tl.broadcast_to(b_x.to(b_w.dtype)[:, None, :], [BR, COPIES, BC])
    b_out = tl.dot(tl.reshape(b_rows, [BR * COPIES, BC]), tl.trans(b_w), input_precision=PRECISION)
    o_copy = tl.arange(0, BR * COPIES)
    o_row = tl.program_id(1) * BR + o_copy // COPIES
    store_outputs(b_out, b_bias, out, o_row, (o_copy % COPIES == 0) & (o_row < R), o_n, N, RELU)


@triton.jit
def add_output(
    residual,
    y,
    b_bias,
    squares,
    rms_epsilon,
    o_r,
    o_c,
    mask,
    R,
    C: tl.constexpr,
    PARTS: tl.constexpr,
    SUMS: tl.constexpr,
):
    """residual + r · Σ y + bias, [BM, BC] in float32, zero where not `mask`, and the mean of each row, [BM]."""
    o_x = o_r[:, None] * C + o_c[None, :]
    b_sum = tl.load(residual + o_x, mask=mask, other=0.0)
    if y is not None:
        b_y = tl.load(y + o_x, mask=mask, other=0.0).to(tl.float32)
        for i_part in tl.static_range(1, PARTS):
            b_y += tl.load(y + i_part * R * C + o_x, mask=mask, other=0.0).to(tl.float32)
        b_sum = tl.where(mask, b_sum + b_bias, 0.0)
    if squares is not None:
        # all sums at once: a row is spread over several warps, and they wait for each other at every sum
        m_sums = mask & (o_c < SUMS)[None, :]
        b_squares = tl.load(squares + o_r[:, None] * SUMS + o_c[None, :], mask=m_sums, other=0.0)
        b_sums = tl.sum(tl.join(tl.join(b_sum, b_y), tl.join(b_squares, b_squares)), axis=1)
        b_totals, b_squares = tl.split(b_sums)
        b_total, b_y_total = tl.split(b_totals)
        b_square, _ = tl.split(b_squares)
        b_r = 1.0 / tl.sqrt(b_square / C + rms_epsilon)
        b_sum += b_r[:, None] * b_y
        b_mean = (b_total + b_r * b_y_total) / C
    else:
        if y is not None:
            b_sum += b_y
        b_mean = tl.sum(b_sum, axis=1) / C
    return b_sum, b_mean


@triton.jit
def layer_norm(b_x, b_mean, mask, b_weight, b_bias, epsilon, C: tl.constexpr):
    """(x - mean) / deviation · weight + bias along the last dimension."""
    b_centred = tl.where(mask, b_x - b_mean[:, None], 0.0)
    b_scale = 1.0 / tl.sqrt(tl.sum(b_centred * b_centred, axis=1) / C + epsilon)
    return b_centred * b_scale[:, None] * b_weight + b_bias


@triton.jit
def load_row(vector, o_c, C: tl.constexpr):
    """Elements of a vector in float32 as a row [1, BC], laid out as a tile's rows are; zeros if there is none."""
    b_row = tl.zeros([1, o_c.shape[0]], dtype=tl.float32)
    if vector is not None:
        b_row = tl.load(vector + o_c[None, :], mask=(o_c < C)[None, :], other=0.0).to(tl.float32)
    return b_row


@triton.jit
def load_vector(vector, o_c, size):
    """Elements of a vector in float32, zeros if there is none."""
    b_vector = tl.zeros(o_c.shape, dtype=tl.float32)
    if vector is not None:
        b_vector = tl.load(vector + o_c, mask=o_c < size, other=0.0).to(tl.float32)
    return b_vector


@triton.jit
def store_outputs(b_out, b_bias, out, o_r, m_r, o_n, N, RELU: tl.constexpr):
    b_out += b_bias[None, :]
    if RELU:
        b_out = tl.maximum(b_out, 0.0, propagate_nan=tl.PropagateNan.ALL)
    mask = m_r[:, None] & (o_n < N)[None, :]
    tl.store(out + o_r[:, None] * N + o_n[None, :], b_out.to(out.dtype.element_ty), mask=mask)


def norm_arguments(norm: Norm | None) -> tuple[Tensor | None, Tensor | None, float]:
    return (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.epsilon)


def output_arguments(output: SublayerOutput | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, float]:
    return (None, None, None, 0.0) if output is None else (output.y, output.bias, output.squares, output.epsilon)


def parts_of(output: SublayerOutput | None) -> int:
    """How many parts y is in."""
    return output.y.size(0) if output is not None and output.y.dim() == 3 else 1
