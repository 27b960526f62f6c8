"""What stands between the attentions of a decoding step: embedding, residual sum with layer norm, and thin products.

A step has few rows, so it is the number of kernels that costs, not what they compute. `residual_norm` is one kernel for
r · y + bias + residual and the layer norm behind it, where r is the 1/RMS that attention left over (see
step_attention.py); `norm_linear` is a product for few rows that computes sum and norm, in every program, on its own input;
`thin_linear` writes partial sums that the next kernel adds up, and can multiply by r itself: for few rows a layer is eight kernels.

Parameters are asked for before anything that depends on them: they come from memory each step, and that takes longer
than the rest of a kernel.

Legend: R rows, C width, K inner size, N outputs.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import PRECISION, ceil_div, power_of_2
from rela.kernels.early_launch import early, let_next_start, wait_for_results

# Rows and outputs of one program of a product: for few rows, and for more of them.
FEW, MANY = (16, 32), (64, 64)


@dataclass(frozen=True)
class Change:
    """What a sublayer adds to the residual: r · y + bias, with r from the squares of each row if there are any.

    y is [R, C], or [parts, R, C] still to be summed; squares are [R, S], to be summed too.
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
    tokens: Tensor, places: Tensor, lengths: Tensor, table: Tensor, positions: Tensor, scale: float, norm: Norm | None,
    residual: Tensor, x: Tensor, *, beam: int, in_chain: bool = False,
) -> None:  # fmt: skip
    """The last token of every row at its position: √C · table[token] + positions[length], zero in an empty seat.

    tokens are [places, beam]; residual [R, C] is float32, x [R, C] what the first product takes, normed if `norm`.
    """
    rows, width = x.shape
    embed_kernel[(rows,)](
        tokens, places, lengths, table, positions, scale, *norm_arguments(norm), residual, x, BEAM=beam, C=width,
        BC=power_of_2(width), num_warps=4, **early(in_chain, x, first=True),
    )  # fmt: skip


@triton.jit
def embed_kernel(
    tokens, places, lengths, table, positions, scale, norm_weight, norm_bias, epsilon, residual, x,
    BEAM: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    i_r = tl.program_id(0)
    o_c = tl.arange(0, BC)
    m_c = o_c < C
    i_place = tl.load(places + i_r // BEAM)
    b_x = tl.zeros([BC], dtype=tl.float32)
    if i_place >= 0:
        token = tl.load(tokens + i_place * BEAM + i_r % BEAM).to(tl.int64)
        position = tl.load(lengths + i_place).to(tl.int64)
        b_x = tl.load(table + token * C + o_c, mask=m_c, other=0.0).to(tl.float32) * scale
        b_x += tl.load(positions + position * C + o_c, mask=m_c, other=0.0)
    tl.store(residual + i_r * C + o_c, b_x, mask=m_c)
    if norm_weight is not None:
        b_weight, b_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
        b_mean = tl.sum(b_x[None, :], axis=1) / C
        b_x = tl.reshape(layer_norm(b_x[None, :], b_mean, m_c[None, :], b_weight, b_bias, epsilon, C), [BC])
    tl.store(x + i_r * C + o_c, b_x.to(x.dtype.element_ty), mask=m_c)


def residual_norm(
    residual: Tensor, change: Change | None, norm: Norm, new_residual: Tensor, x: Tensor, *, in_chain: bool = False
) -> None:
    """residual + change, and its layer norm as x; the residual goes on as the sum (pre-norm) or as x (post-norm).

    residual and new_residual, float32 [R, C], may be the same tensor.
    """
    rows, width = x.shape
    sums = 1 if change is None or change.squares is None else change.squares.size(1)
    residual_norm_kernel[(rows,)](
        residual, *change_arguments(change), *norm_arguments(norm), new_residual, x, rows,
        C=width, BC=power_of_2(width), PARTS=parts_of(change), S=sums, NORM_FIRST=norm.first, num_warps=4,
        **early(in_chain, x),
    )  # fmt: skip


@triton.jit(do_not_specialize=["R"])
def residual_norm_kernel(
    residual, y, change_bias, squares, rms_epsilon, norm_weight, norm_bias, epsilon, new_residual, x, R,
    C: tl.constexpr, BC: tl.constexpr, PARTS: tl.constexpr, S: tl.constexpr, NORM_FIRST: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    o_r = tl.program_id(0) + tl.arange(0, 1)
    o_c = tl.arange(0, BC)
    b_weight, b_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
    b_change_bias = load_row(change_bias, o_c, C)
    wait_for_results(EARLY)
    mask = (o_r < R)[:, None] & (o_c < C)[None, :]
    b_sum, b_mean = changed(residual, y, b_change_bias, squares, rms_epsilon, o_r, o_c, mask, R, C, PARTS, S)
    b_x = layer_norm(b_sum, b_mean, mask, b_weight, b_bias, epsilon, C)
    o_out = o_r[:, None] * C + o_c[None, :]
    tl.store(new_residual + o_out, b_sum if NORM_FIRST else b_x, mask=mask)
    tl.store(x + o_out, b_x.to(x.dtype.element_ty), mask=mask)


def thin_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, squares: Tensor | None = None, epsilon: float = 0.0, *,
    relu: bool = False, in_chain: bool = False,
) -> None:  # fmt: skip
    """x [R, K] times weight [N, K] transposed, into out [R, N], or in parts [parts, R, N] of the inner size.

    With squares [R, S] every row is divided by its root mean square, √(Σ squares / K + epsilon).
    """
    parts = out.size(0) if out.dim() == 3 else 1
    (rows, inner), width = x.shape, weight.size(0)
    BM, BN = FEW if rows <= 2 * FEW[0] else MANY
    BK = min(512, power_of_2(inner))
    sums = 1 if squares is None else squares.size(1)
    thin_linear_kernel[(ceil_div(width, BN), ceil_div(rows, BM), parts)](
        x, weight, bias, out, squares, epsilon, rows, width, N_K=inner, S=sums, BS=power_of_2(sums),
        LENGTH=ceil_div(inner, parts * BK) * BK, BM=BM, BN=BN, BK=BK, RELU=relu, PRECISION=PRECISION, num_warps=4,
        num_stages=1, **early(in_chain, x),
    )  # fmt: skip


@triton.jit(do_not_specialize=["R"])
def thin_linear_kernel(
    x, weight, bias, out, squares, epsilon, R, N, N_K: tl.constexpr, S: tl.constexpr, BS: tl.constexpr,
    LENGTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    i_part = tl.program_id(2)
    o_n = tl.program_id(0) * BN + tl.arange(0, BN)
    o_r = tl.program_id(1) * BM + tl.arange(0, BM)
    o_k = tl.arange(0, BK)
    first = i_part * LENGTH
    b_w = load_tile(weight, o_n, first + o_k, N, N_K)
    b_bias = load_vector(bias, o_n, N)
    wait_for_results(EARLY)
    b_x = load_tile(x, o_r, first + o_k, R, N_K)
    if squares is not None:
        b_squares = load_tile(squares, o_r, tl.arange(0, BS), R, S)
    b_out = tl.dot(b_x, tl.trans(b_w), input_precision=PRECISION)
    for i_k in range(first + BK, tl.minimum(first + LENGTH, N_K), BK):
        b_w = load_tile(weight, o_n, i_k + o_k, N, N_K)
        b_out = tl.dot(load_tile(x, o_r, i_k + o_k, R, N_K), tl.trans(b_w), b_out, input_precision=PRECISION)
    if squares is not None:
        b_out *= (1.0 / tl.sqrt(tl.sum(b_squares, axis=1) / N_K + epsilon))[:, None]
    store_outputs(b_out, b_bias, out + i_part * R * N, o_r, o_r < R, o_n, N, RELU)


@triton.jit
def load_tile(matrix, o_row, o_k, rows, K: tl.constexpr):
    """Elements of a matrix [rows, K], zero beyond its edges."""
    mask = (o_row < rows)[:, None] & (o_k < K)[None, :]
    return tl.load(matrix + o_row[:, None] * K + o_k[None, :], mask=mask, other=0.0)


def norm_linear(
    residual: Tensor, change: Change, norm: Norm, new_residual: Tensor, weight: Tensor, bias: Tensor, out: Tensor, *,
    relu: bool = False, in_chain: bool = False,
) -> None:  # fmt: skip
    """`residual_norm` and the product behind it in one kernel, for few rows; new_residual must not be residual.

    The change has no squares left: a thin product multiplies by 1/RMS itself.
    """
    assert change.squares is None
    rows, width = residual.shape
    BM, BN = FEW
    BR = min(BM, power_of_2(rows))
    warps = 4 if BR <= 8 else 8  # more rows do not fit into the registers of fewer
    norm_linear_kernel[(ceil_div(weight.size(0), BN), ceil_div(rows, BR))](
        residual, change.y, change.bias, *norm_arguments(norm), new_residual, weight, bias, out, rows,
        weight.size(0), C=width, BC=power_of_2(width), PARTS=parts_of(change), NORM_FIRST=norm.first, BR=BR,
        COPIES=BM // BR, BN=BN, RELU=relu, PRECISION=PRECISION, num_warps=warps,
        **early(in_chain, residual),
    )  # fmt: skip


@triton.jit(do_not_specialize=["R"])
def norm_linear_kernel(
    residual, y, change_bias, norm_weight, norm_bias, epsilon, new_residual, weight, bias, out,
    R, N, C: tl.constexpr, BC: tl.constexpr, PARTS: tl.constexpr, NORM_FIRST: tl.constexpr,
    BR: tl.constexpr, COPIES: tl.constexpr, BN: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    o_n = tl.program_id(0) * BN + tl.arange(0, BN)
    o_r = tl.program_id(1) * BR + tl.arange(0, BR)
    o_c = tl.arange(0, BC)
    b_w = load_tile(weight, o_n, o_c, N, C)
    b_bias = load_vector(bias, o_n, N)
    b_norm_weight, b_norm_bias = load_row(norm_weight, o_c, C), load_row(norm_bias, o_c, C)
    b_change_bias = load_row(change_bias, o_c, C)
    wait_for_results(EARLY)
    mask = (o_r < R)[:, None] & (o_c < C)[None, :]
    # [BR, BC]
    b_sum, b_mean = changed(residual, y, b_change_bias, None, 0.0, o_r, o_c, mask, R, C, PARTS, 1)
    b_x = layer_norm(b_sum, b_mean, mask, b_norm_weight, b_norm_bias, epsilon, C)
    if tl.program_id(0) == 0:
        tl.store(new_residual + o_r[:, None] * C + o_c[None, :], b_sum if NORM_FIRST else b_x, mask=mask)
    # a product wants 16 rows: each of the BR is there COPIES times, so that norms are computed for BR alone
    b_rows = tl.broadcast_to(b_x.to(b_w.dtype)[:, None, :], [BR, COPIES, BC])
    b_out = tl.dot(tl.reshape(b_rows, [BR * COPIES, BC]), tl.trans(b_w), input_precision=PRECISION)
    o_copy = tl.arange(0, BR * COPIES)
    o_row = tl.program_id(1) * BR + o_copy // COPIES
    store_outputs(b_out, b_bias, out, o_row, (o_copy % COPIES == 0) & (o_row < R), o_n, N, RELU)


@triton.jit
def changed(
    residual, y, b_bias, squares, rms_epsilon, o_r, o_c, mask, R, C: tl.constexpr, PARTS: tl.constexpr, S: tl.constexpr
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
        # all sums at once: a row lies in several warps, and they wait for each other with every sum
        m_s = mask & (o_c < S)[None, :]
        b_squares = tl.load(squares + o_r[:, None] * S + o_c[None, :], mask=m_s, other=0.0)
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
    """Elements of a vector in float32 as a row [1, BC], so that they lie where those of a tile's rows do; zeros if there is none."""
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


def change_arguments(change: Change | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, float]:
    return (None, None, None, 0.0) if change is None else (change.y, change.bias, change.squares, change.epsilon)


def parts_of(change: Change | None) -> int:
    """How many parts y is in."""
    return change.y.size(0) if change is not None and change.y.dim() == 3 else 1
