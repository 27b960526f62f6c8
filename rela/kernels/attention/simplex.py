"""The forward pass of sparsemax, 1.5-entmax and α-entmax attention, one program for each tile of queries and head.

    z = (α − 1) · scale · q kᵀ      p = max(z − τ, 0)^(1/(α − 1))      out = p v

τ makes each row of weights sum to one. No sort is needed: the norm of the weights that a threshold leaves is a convex
function of it, so Newton's method from the left, beginning at the largest score less one, never steps too far. Where
the keys of a tile of queries fit one tile of keys, their scores stay in registers during the search; longer rows are
computed again in each step. docs/simplex-kernels.md has the derivation.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.activations import alpha_of
from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import (
    dropout_key,
    head_of,
    in_interval,
    kept,
    load_rows,
    seen_keys,
    store_rows,
    under_mask,
)
from rela.kernels.attention.tiles import Tiles, simplex_tiles
from rela.kernels.launch import Launch

MOST_STEPS = tl.constexpr(24)  # of the search: ten were the most that random scores took
HIDDEN = tl.constexpr(-2.0)  # a score below every threshold: τ is at least −1 where the largest score is 0


def simplex_forward(problem: Problem, tiles: Tiles | None = None) -> tuple[Tensor, Tensor]:
    """The context, [B, H, T, D] in memory as [B, T, H, D], and float32 [2, B, H, T]: largest z, τ relative to it."""
    run = problem.memo.get(("simplex forward", tiles))
    if run is None:
        run = problem.memo[("simplex forward", tiles)] = planned(problem, tiles or simplex_tiles(problem))
    return run(problem)


def planned(problem: Problem, tiles: Tiles) -> Callable[[Problem], tuple[Tensor, Tensor]]:
    """A function that computes this problem, and all that differ from it in their numbers alone."""
    q = problem.q
    B, H, T, D = q.shape
    device, some = q.device, q.numel() > 0
    mine = {**constants(problem, tiles), "TOLERANCE": tolerance(problem)}
    launch = Launch(simplex_kernel, (ceil_div(T, tiles.queries) * H * B,), mine)
    fixed = *scales(problem)[:2], *(x.stride()[:3] for x in (q, problem.k, problem.v)), (T * H * D, D, H * D)

    def run(problem: Problem) -> tuple[Tensor, Tensor]:
        out = problem.like_queries(problem.q.dtype)
        levels = torch.empty(2, B, H, T, dtype=torch.float32, device=device)
        if some:
            given = problem.optional_arguments()[1:]
            launch(problem.q, problem.k, problem.v, out, levels[0], levels[1], *given, *fixed)
        return out, levels

    return run


def constants(problem: Problem, tiles: Tiles) -> dict[str, object]:
    """Sizes and compile-time choices that all kernels of the simplex take, by the names they give them."""
    mine = {**problem.sizes(), **tiles.constants(), "ALPHA": alpha_of(problem.activation)}
    del mine["SKIP"]
    return mine


def tolerance(problem: Problem) -> float:
    """The step of τ, which lies between −1 and 0, that ends the search.

    The step that is last squares the error that is left, but for sparsemax, which goes from corner to corner.
    """
    if problem.q.dtype == torch.float32:
        return 2.5e-7
    return 2e-6 if alpha_of(problem.activation) == 2.0 else 2e-4


def scales(problem: Problem) -> tuple[float, float, float]:
    """Factors of q kᵀ for z, of the output, and of dQ and dK."""
    alpha, survivors = alpha_of(problem.activation), 1.0 / (1.0 - problem.dropout)
    assert alpha is not None
    return problem.scale * (alpha - 1.0), survivors, problem.scale * survivors


@triton.jit
def above(b_z, b_tau):
    """max(z − τ, 0); NaN stays NaN."""
    return tl.maximum(b_z - b_tau, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def slopes(b_u, ALPHA: tl.constexpr):
    """p^(2 − α) of the weights p = u^(1/(α − 1)): the slopes of the weights, by which u becomes p."""
    EXPONENT: tl.constexpr = (2.0 - ALPHA) / (ALPHA - 1.0)
    if ALPHA == 2.0:
        b_slope = tl.where(b_u <= 0.0, 0.0, 1.0)  # 1 for NaN, which shows in u
    elif ALPHA == 1.5:
        b_slope = b_u
    else:
        b_slope = tl.where(b_u <= 0.0, 0.0, tl.exp2(EXPONENT * tl.log2(tl.where(b_u <= 0.0, 1.0, b_u))))
    return b_slope


@triton.jit
def search_step(b_total, b_slopes, ALPHA: tl.constexpr):
    """What Newton's method adds to τ, from the sums of a row's weights and slopes; 0 in a row without keys."""
    if ALPHA == 2.0:
        b_root = 1.0
    elif ALPHA == 1.5:
        b_root = tl.sqrt(b_total)
    else:
        b_root = tl.exp2((2.0 - ALPHA) * tl.log2(tl.where(b_total == 0.0, 1.0, b_total)))
    return tl.where(b_slopes == 0.0, 0.0, (b_total - b_root) / tl.where(b_slopes == 0.0, 1.0, b_slopes))


@triton.jit
def row_scores(
    b_q,
    k,
    stride,
    i_s,
    o_t,
    o_col,
    o_d,
    first,
    last,
    b_begin,
    b_end,
    T,
    score_scale,
    mask,
    mask_strides,
    D: tl.constexpr,
    BD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """z of the queries with the keys from i_s on, [BT, BS]; which of them are seen; and the keys, [BS, BD]."""
    b_k = load_rows(k, i_s, stride, o_col, o_d, first, last, D, BD, True)
    b_z = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION) * score_scale
    o_s = i_s + o_col
    m_seen = in_interval(o_t, o_s, b_begin, b_end, T)
    b_z, m_seen = under_mask(b_z, mask, mask_strides, o_t[:, None], o_s[None, :], m_seen, 1.0, False)
    return b_z, m_seen, b_k


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def simplex_kernel(
    q,
    k,
    v,
    out,
    largest,
    thresholds,
    key_lengths,
    key_starts,
    mask,
    cu_q,
    cu_k,
    seed,
    left,
    right,
    score_scale,
    output_scale,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    mask_strides,
    H,
    T,
    S,
    sequences,
    search_steps,
    drop_below,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    ALPHA: tl.constexpr,
    TOLERANCE: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
):
    n_t = tl.cdiv(T, BT)
    i_t = tl.program_id(0) % n_t
    i_bh = tl.program_id(0) // n_t
    i_h = i_bh % H
    i_b = i_bh // H
    if CAUSAL:
        i_t = n_t - 1 - i_t  # the longest rows first
    q = head_of(q, q_strides, i_b, i_h)
    k = head_of(k, k_strides, i_b, i_h // GROUP)
    v = head_of(v, v_strides, i_b, i_h // GROUP)
    out = head_of(out, out_strides, i_b, i_h)
    if mask is not None:
        mask = head_of(mask, mask_strides, i_b, i_h)
    if seed is not None:
        key_0, key_1 = dropout_key(seed, i_b, i_h)

    o_row = tl.arange(0, BT)
    o_col = tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    o_t = i_t * BT + o_row
    b_begin, b_end = seen_keys(
        tl.minimum(o_t, T - 1),
        i_b,
        T,
        S,
        sequences,
        cu_q,
        cu_k,
        search_steps,
        key_lengths,
        key_starts,
        left,
        right,
        CAUSAL,
    )
    first = tl.min(b_begin)
    last = tl.max(b_end)

    # [BT, BD]
    b_q = load_rows(q, i_t * BT, q_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_out = tl.zeros([BT, BD], dtype=tl.float32)
    b_tau = tl.full([BT], -1.0, dtype=tl.float32)
    b_step = tl.full([BT], 1.0, dtype=tl.float32)
    moved = 1.0  # the largest step of a row
    steps = 0
    if last - first <= BS:
        # [BT, BS]; the scores of whole rows, relative to the largest
        b_z, m_seen, _ = row_scores(
            b_q,
            k,
            k_strides[2],
            first,
            o_t,
            o_col,
            o_d,
            first,
            last,
            b_begin,
            b_end,
            T,
            score_scale,
            mask,
            mask_strides,
            D,
            BD,
            PRECISION,
        )
        b_largest = tl.max(tl.where(m_seen, b_z, float("-inf")), axis=1)
        b_largest = tl.where(b_largest == float("-inf"), 0.0, b_largest)
        b_z = tl.where(m_seen, b_z - b_largest[:, None], HIDDEN)
        while (moved > TOLERANCE) & (steps < MOST_STEPS):
            b_u = above(b_z, b_tau[:, None])
            b_slope = slopes(b_u, ALPHA)
            b_next = search_step(tl.sum(b_u * b_slope, axis=1), tl.sum(b_slope, axis=1), ALPHA)
            b_step = tl.where(b_step > TOLERANCE, b_next, 0.0)  # a row does not depend on those beside it
            b_tau += b_step
            moved = tl.max(b_step)
            steps += 1
        b_u = above(b_z, b_tau[:, None])
        b_w = b_u * slopes(b_u, ALPHA)
        if seed is not None:
            b_w = tl.where(kept(key_0, key_1, drop_below, o_t[:, None], (first + o_col)[None, :]), b_w, 0.0)
        # [BS, BD]
        b_v = load_rows(v, first, v_strides[2], o_col, o_d, first, last, D, BD, True)
        b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)
    else:
        # the same, tile by tile, and again in each step of the search
        b_largest = tl.full([BT], float("-inf"), dtype=tl.float32)
        for i_s in range(first, last, BS):
            b_z, m_seen, _ = row_scores(
                b_q,
                k,
                k_strides[2],
                i_s,
                o_t,
                o_col,
                o_d,
                first,
                last,
                b_begin,
                b_end,
                T,
                score_scale,
                mask,
                mask_strides,
                D,
                BD,
                PRECISION,
            )
            b_largest = tl.maximum(b_largest, tl.max(tl.where(m_seen, b_z, float("-inf")), axis=1))
        b_largest = tl.where(b_largest == float("-inf"), 0.0, b_largest)
        while (moved > TOLERANCE) & (steps < MOST_STEPS):
            b_total = tl.zeros([BT], dtype=tl.float32)
            b_slopes = tl.zeros([BT], dtype=tl.float32)
            for i_s in range(first, last, BS):
                b_z, m_seen, _ = row_scores(
                    b_q,
                    k,
                    k_strides[2],
                    i_s,
                    o_t,
                    o_col,
                    o_d,
                    first,
                    last,
                    b_begin,
                    b_end,
                    T,
                    score_scale,
                    mask,
                    mask_strides,
                    D,
                    BD,
                    PRECISION,
                )
                b_u = above(tl.where(m_seen, b_z - b_largest[:, None], HIDDEN), b_tau[:, None])
                b_slope = slopes(b_u, ALPHA)
                b_total += tl.sum(b_u * b_slope, axis=1)
                b_slopes += tl.sum(b_slope, axis=1)
            b_step = tl.where(b_step > TOLERANCE, search_step(b_total, b_slopes, ALPHA), 0.0)
            b_tau += b_step
            moved = tl.max(b_step)
            steps += 1
        for i_s in range(first, last, BS):
            b_z, m_seen, _ = row_scores(
                b_q,
                k,
                k_strides[2],
                i_s,
                o_t,
                o_col,
                o_d,
                first,
                last,
                b_begin,
                b_end,
                T,
                score_scale,
                mask,
                mask_strides,
                D,
                BD,
                PRECISION,
            )
            b_u = above(tl.where(m_seen, b_z - b_largest[:, None], HIDDEN), b_tau[:, None])
            b_w = b_u * slopes(b_u, ALPHA)
            if seed is not None:
                b_w = tl.where(kept(key_0, key_1, drop_below, o_t[:, None], (i_s + o_col)[None, :]), b_w, 0.0)
            b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, True)
            b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)

    store_rows(out, i_t * BT, out_strides[2], o_row, o_d, T, b_out * output_scale, D)
    p_row = i_bh.to(tl.int64) * T + o_t
    tl.store(largest + p_row, b_largest, mask=o_t < T)
    tl.store(thresholds + p_row, b_tau, mask=o_t < T)
