"""The backward pass of sparsemax, 1.5-entmax and α-entmax attention, from each row's largest score and threshold.

    s = p^(2 − α)     dP = dO vᵀ     c = Σ s dP / Σ s     dS = s (dP − c)     dQ = dS k · scale     dK = dSᵀ q · scale

The sums are over the keys of a row. The first kernel gives dQ and c, the second dK and dV = pᵀ dO. Every sum is made in
a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.backward import launch_of
from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import (
    dropout_key,
    head_of,
    in_interval,
    kept,
    load_rows,
    seeing_queries,
    seen_keys,
    store_rows,
    under_mask,
)
from rela.kernels.attention.simplex import above, constants, row_scores, scales, slopes
from rela.kernels.attention.tiles import Tiles, simplex_key_tiles, simplex_tiles


def simplex_backward(
    problem: Problem,
    levels: Tensor,
    d_out: Tensor,
    key_tiles: Tiles | None = None,
    query_tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; `levels` are those of `simplex_forward`."""
    if d_out.stride(-1) != 1:
        d_out = d_out.contiguous()  # once for both kernels
    dq, centres = query_gradients(problem, levels, d_out, query_tiles or simplex_tiles(problem))
    return dq, *key_gradients(problem, levels, d_out, centres, key_tiles or simplex_key_tiles(problem))


def query_gradients(problem: Problem, levels: Tensor, d_out: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """dQ, and c of each row, float32 [B, H, T]."""
    q, k, v = problem.q, problem.k, problem.v
    B, H, T, _ = q.shape
    dq = problem.like_queries(q.dtype)
    centres = torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    if q.numel():
        programs = ceil_div(T, tiles.queries) * H * B
        name, kernel = "simplex query gradients", query_gradient_kernel
        d_out, launch = launch_of(problem, name, kernel, programs, tiles, d_out, constants)
        tensors = q, k, v, d_out, levels[0], levels[1], centres, dq
        strides = (x.stride()[:3] for x in (q, k, v, d_out, dq))
        score_scale, _, gradient_scale = scales(problem)
        launch(*tensors, *problem.optional_arguments()[1:], score_scale, gradient_scale, *strides)
    return dq, centres


def key_gradients(
    problem: Problem, levels: Tensor, d_out: Tensor, centres: Tensor, tiles: Tiles
) -> tuple[Tensor, Tensor]:
    """dK and dV."""
    q, k, v = problem.q, problem.k, problem.v
    B, Hk, S, _ = k.shape
    dk, dv = problem.like_keys(), problem.like_keys()
    if k.numel():
        programs = ceil_div(S, tiles.keys) * Hk * B
        name, kernel = "simplex key gradients", key_gradient_kernel
        d_out, launch = launch_of(problem, name, kernel, programs, tiles, d_out, constants)
        tensors = q, k, v, d_out, levels[0], levels[1], centres, dk, dv
        strides = (x.stride()[:3] for x in (q, k, v, d_out, dk))
        launch(*tensors, *problem.optional_arguments()[1:], *scales(problem), *strides)
    return dk, dv


@triton.jit
def seen_gradient(b_dp, m_seen, seed, key_0, key_1, drop_below, o_t, o_s):
    """The gradient of the weights before dropout, but for its factor; zero where no key is seen, whatever dO is."""
    if seed is not None:
        m_seen = m_seen & kept(key_0, key_1, drop_below, o_t, o_s)
    return tl.where(m_seen, b_dp, 0.0)


@triton.jit
def mean(b_sum, b_slopes, b_tau):
    """c of each row: 0 in a row without keys, NaN where a score was NaN and so τ is."""
    return b_sum / tl.where(b_slopes == 0.0, 1.0, b_slopes) + (b_tau - b_tau)


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def query_gradient_kernel(
    q,
    k,
    v,
    d_out,
    largest,
    thresholds,
    centres,
    dq,
    key_lengths,
    key_starts,
    mask,
    cu_q,
    cu_k,
    seed,
    left,
    right,
    score_scale,
    gradient_scale,
    q_strides,
    k_strides,
    v_strides,
    d_out_strides,
    dq_strides,
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
    d_out = head_of(d_out, d_out_strides, i_b, i_h)
    dq = head_of(dq, dq_strides, i_b, i_h)
    if mask is not None:
        mask = head_of(mask, mask_strides, i_b, i_h)
    key_0, key_1 = None, None
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
    b_do = load_rows(d_out, i_t * BT, d_out_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_dq = tl.zeros([BT, BD], dtype=tl.float32)
    # [BT]
    p_row = i_bh.to(tl.int64) * T + o_t
    b_largest = tl.load(largest + p_row, mask=o_t < T, other=0.0)
    b_tau = tl.load(thresholds + p_row, mask=o_t < T, other=0.0)
    if last - first <= BS:
        # [BT, BS]; whole rows
        b_z, m_seen, b_k = row_scores(
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
        b_slope = tl.where(m_seen, slopes(above(b_z - b_largest[:, None], b_tau[:, None]), ALPHA), 0.0)
        b_v = load_rows(v, first, v_strides[2], o_col, o_d, first, last, D, BD, True)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
        b_dp = seen_gradient(b_dp, m_seen, seed, key_0, key_1, drop_below, o_t[:, None], (first + o_col)[None, :])
        b_slopes = tl.sum(b_slope, axis=1)
        b_centre = mean(tl.sum(b_slope * b_dp, axis=1), b_slopes, b_tau)
        b_ds = b_slope * (b_dp - b_centre[:, None])
        b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision=PRECISION)
    else:
        b_slopes = tl.zeros([BT], dtype=tl.float32)
        b_centre = tl.zeros([BT], dtype=tl.float32)
        for i_s in range(first, last, BS):
            b_z, m_seen, b_k = row_scores(
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
            b_slope = tl.where(m_seen, slopes(above(b_z - b_largest[:, None], b_tau[:, None]), ALPHA), 0.0)
            b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, True)
            b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
            b_dp = seen_gradient(b_dp, m_seen, seed, key_0, key_1, drop_below, o_t[:, None], (i_s + o_col)[None, :])
            b_slopes += tl.sum(b_slope, axis=1)
            b_centre += tl.sum(b_slope * b_dp, axis=1)
        b_centre = mean(b_centre, b_slopes, b_tau)
        for i_s in range(first, last, BS):
            b_z, m_seen, b_k = row_scores(
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
            b_slope = tl.where(m_seen, slopes(above(b_z - b_largest[:, None], b_tau[:, None]), ALPHA), 0.0)
            b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, True)
            b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
            b_dp = seen_gradient(b_dp, m_seen, seed, key_0, key_1, drop_below, o_t[:, None], (i_s + o_col)[None, :])
            b_ds = b_slope * (b_dp - b_centre[:, None])
            b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision=PRECISION)

    store_rows(dq, i_t * BT, dq_strides[2], o_row, o_d, T, b_dq * gradient_scale, D)
    tl.store(centres + p_row, b_centre, mask=o_t < T)


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def key_gradient_kernel(
    q,
    k,
    v,
    d_out,
    largest,
    thresholds,
    centres,
    dk,
    dv,
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
    gradient_scale,
    q_strides,
    k_strides,
    v_strides,
    d_out_strides,
    dk_strides,
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
    BT: tl.constexpr,
    BS: tl.constexpr,
):
    n_s = tl.cdiv(S, BS)
    i_s = tl.program_id(0) % n_s
    i_bh = tl.program_id(0) // n_s
    i_hk = i_bh % (H // GROUP)
    i_b = i_bh // (H // GROUP)
    k = head_of(k, k_strides, i_b, i_hk)
    v = head_of(v, v_strides, i_b, i_hk)
    dk = head_of(dk, dk_strides, i_b, i_hk)
    dv = head_of(dv, dk_strides, i_b, i_hk)

    o_row = tl.arange(0, BS)
    o_col = tl.arange(0, BT)
    o_d = tl.arange(0, BD)
    o_s = i_s * BS + o_row
    b_begin, b_end = seeing_queries(
        tl.minimum(o_s, S - 1),
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

    # [BS, BD]; rows behind the last sequence may hold anything
    end = S
    if cu_q is not None:
        end = tl.load(cu_k + sequences)
    b_k = load_rows(k, i_s * BS, k_strides[2], o_row, o_d, 0, end, D, BD, True)
    b_v = load_rows(v, i_s * BS, v_strides[2], o_row, o_d, 0, end, D, BD, True)
    b_dk = tl.zeros([BS, BD], dtype=tl.float32)
    b_dv = tl.zeros([BS, BD], dtype=tl.float32)
    for i_g in range(GROUP):
        i_h = i_hk * GROUP + i_g
        q_head = head_of(q, q_strides, i_b, i_h)
        d_out_head = head_of(d_out, d_out_strides, i_b, i_h)
        row_0 = (i_b * H + i_h).to(tl.int64) * T
        key_0, key_1 = None, None
        if seed is not None:
            key_0, key_1 = dropout_key(seed, i_b, i_h)
        for i_t in range(first, last, BT):
            # [BT, BD]
            b_q = load_rows(q_head, i_t, q_strides[2], o_col, o_d, first, last, D, BD, True)
            b_do = load_rows(d_out_head, i_t, d_out_strides[2], o_col, o_d, first, last, D, BD, True)
            # [BT]
            o_t = i_t + o_col
            m_t = o_t < last
            b_largest = tl.load(largest + row_0 + o_t, mask=m_t, other=0.0)
            b_tau = tl.load(thresholds + row_0 + o_t, mask=m_t, other=0.0)
            b_centre = tl.load(centres + row_0 + o_t, mask=m_t, other=0.0)
            # [BS, BT]
            b_z = tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION) * score_scale
            m_seen = in_interval(o_s, o_t, b_begin, b_end, S)
            mask_head = mask
            if mask is not None:
                mask_head = head_of(mask, mask_strides, i_b, i_h)
            b_z, m_seen = under_mask(b_z, mask_head, mask_strides, o_t[None, :], o_s[:, None], m_seen, 1.0, False)
            b_u = tl.where(m_seen, above(b_z - b_largest[None, :], b_tau[None, :]), 0.0)
            b_slope = slopes(b_u, ALPHA)
            b_w = b_u * b_slope
            if seed is not None:
                m_kept = kept(key_0, key_1, drop_below, o_t[None, :], o_s[:, None])
                b_w = tl.where(m_kept, b_w, 0.0)
            b_dv = tl.dot(b_w.to(b_do.dtype), b_do, b_dv, input_precision=PRECISION)
            b_dp = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION)
            if seed is not None:
                b_dp = tl.where(m_kept, b_dp, 0.0)
            b_ds = tl.where(m_seen, b_slope * (b_dp - b_centre[None, :]), 0.0)
            b_dk = tl.dot(b_ds.to(b_q.dtype), b_q, b_dk, input_precision=PRECISION)
    store_rows(dk, i_s * BS, dk_strides[2], o_row, o_d, S, b_dk * gradient_scale, D)
    store_rows(dv, i_s * BS, dk_strides[2], o_row, o_d, S, b_dv * output_scale, D)
