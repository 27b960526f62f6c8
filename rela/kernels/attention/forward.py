"""The forward pass, out = act(q kᵀ · scale − θ) v, one program for each tile of queries and head.

relu needs no row statistics, so a program loops over the keys its queries see and adds up: first the tiles that every
query of the tile sees whole, without any mask, then the ragged rest. In the same loop it can count the non-zero weights
of each row and keep the largest. docs/kernels.md has the derivations.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div, heads_last
from rela.kernels.attention.scores import (
    dropout_key,
    head_of,
    in_interval,
    kept,
    load_rows,
    seen_keys,
    seen_weights,
    shifted,
    store_rows,
    under_mask,
)
from rela.kernels.attention.tiles import Tiles, forward_tiles
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.launch import Launch

Statistics = tuple[Tensor, ...]  # non-zeros, argmax, largest: each [B, H, T]
Run = Callable[[Problem, tuple[Tensor, ...] | None], Tensor]


def forward(problem: Problem, statistics: bool = False, tiles: Tiles | None = None) -> tuple[Tensor, Statistics | None]:
    """The context, [B, H, T, D] in memory as [B, T, H, D] so that merging the heads is a view, and row statistics."""
    q = problem.q
    rows: tuple[Tensor, ...] | None = None
    if statistics:
        kinds = torch.int32, torch.int32, torch.float32
        rows = tuple(torch.empty(q.shape[:3], dtype=kind, device=q.device) for kind in kinds)
    run = problem.memo.get(("forward", statistics, tiles))
    if run is None:
        run = problem.memo[("forward", statistics, tiles)] = planned(problem, statistics, tiles)
    return run(problem, rows), rows


def planned(problem: Problem, statistics: bool = False, tiles: Tiles | None = None) -> Run:
    """A function that computes this problem, and all that differ from it in their numbers alone."""
    q = problem.q
    if tiles is None and hopper.serves(problem, statistics):
        return hopper.planned_forward(problem, statistics)
    if not q.numel():
        return lambda problem, rows: problem.like_queries(problem.q.dtype)
    tiles = tiles or forward_tiles(problem, statistics)
    B, H, T, D = q.shape
    grid = (ceil_div(T, tiles.queries) * H * B,)
    launch = Launch(forward_kernel, grid, {**problem.constants(), **tiles.constants()})
    shape, kind, device = q.shape, q.dtype, q.device
    strides = (T * H * D, D, H * D)  # of the context
    fixed = *problem.scales(), *(x.stride()[:3] for x in (q, problem.k, problem.v)), strides

    def run(problem: Problem, rows: tuple[Tensor, ...] | None) -> Tensor:
        out = heads_last(shape, kind, device)
        given = problem.optional_arguments()
        launch(problem.q, problem.k, problem.v, out, *(rows or (None, None, None)), *given, *fixed)
        return out

    return run


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def forward_kernel(
    q,
    k,
    v,
    out,
    nonzeros,
    argmax,
    largest,
    threshold,
    key_lengths,
    key_starts,
    mask,
    cu_q,
    cu_k,
    seed,
    left,
    right,
    score_scale,
    threshold_scale,
    output_scale,
    gradient_scale,
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
    ACTIVATION: tl.constexpr,
    RECTIFIES: tl.constexpr,
    BIASED: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
    SKIP: tl.constexpr,
):
    n_t = tl.cdiv(T, BT)
    i_t = tl.program_id(0) % n_t
    i_bh = tl.program_id(0) // n_t
    i_h = i_bh % H
    i_b = i_bh // H
    if CAUSAL:
        i_t = n_t - 1 - i_t  # the longest rows first, so that the last programs to finish are short
    q = head_of(q, q_strides, i_b, i_h)
    k = head_of(k, k_strides, i_b, i_h // GROUP)
    v = head_of(v, v_strides, i_b, i_h // GROUP)
    out = head_of(out, out_strides, i_b, i_h)
    b_theta = None
    if threshold is not None:
        b_theta = tl.load(threshold + i_h).to(tl.float32) * threshold_scale
    if mask is not None:
        mask = head_of(mask, mask_strides, i_b, i_h)
    if seed is not None:
        key_0, key_1 = dropout_key(seed, i_b, i_h)

    o_row = tl.arange(0, BT)
    o_col = tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    o_t = i_t * BT + o_row
    # rows past the end repeat the last one, so that they do not make the tile look ragged
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
    middle = first  # where the tiles begin that every query sees whole
    if left is not None:
        middle = first + tl.cdiv(tl.max(b_begin) - first, BS) * BS
    whole = 0
    if mask is None:
        whole = tl.maximum(tl.min(b_end) - middle, 0) // BS * BS
        if cu_q is not None:
            whole = tl.where(tl.max(b_begin) == first, whole, 0)

    # [BT, BD]
    b_q = load_rows(q, i_t * BT, q_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_out = tl.zeros([BT, BD], dtype=tl.float32)
    # [BT, BS]: statistics of each column of the tiles, reduced over the columns once, after the loop
    if nonzeros is not None:
        b_count = tl.zeros([BT, BS], dtype=tl.int32)
        b_best = tl.full([BT, BS], float("-inf"), dtype=tl.float32)
        b_from = tl.zeros([BT, BS], dtype=tl.int32)
    PARTS: tl.constexpr = 2 if left is None else 3
    for RAGGED in tl.static_range(PARTS):
        if RAGGED == 2:
            start, stop = first, tl.minimum(middle, last)
        elif RAGGED == 1:
            start, stop = middle + whole, last
        else:
            start, stop = middle, middle + whole
        for i_s in range(start, stop, BS):
            # [BS, BD]
            b_k = load_rows(k, i_s, k_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
            # [BT, BS]; no running maximum, no rescaling
            b_s = shifted(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), score_scale, b_theta)
            o_s = i_s + o_col
            m_seen = None
            if RAGGED:
                m_seen = in_interval(o_t, o_s, b_begin, b_end, T)
                b_s, m_seen = under_mask(
                    b_s, mask, mask_strides, o_t[:, None], o_s[None, :], m_seen, threshold_scale, BIASED
                )
            b_w = seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES)
            if nonzeros is not None:
                b_count += (b_w != 0.0).to(tl.int32)
                b_seen = b_w
                if RAGGED:
                    b_seen = tl.where(m_seen, b_w, float("-inf"))
                b_from = tl.where(b_seen > b_best, i_s, b_from)
                b_best = tl.maximum(b_seen, b_best)
            if seed is not None:
                b_w = tl.where(kept(key_0, key_1, drop_below, o_t[:, None], o_s[None, :]), b_w, 0.0)
            if SKIP:
                # an empty tile never touches V; the branch keeps V from being loaded ahead
                if tl.max(tl.abs(b_w)) != 0.0:
                    b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
                    b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)
            else:
                b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
                b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)

    store_rows(out, i_t * BT, out_strides[2], o_row, o_d, T, b_out * output_scale, D)
    if nonzeros is not None:
        p_row = i_bh.to(tl.int64) * T + o_t
        b_nonzeros = tl.sum(b_count, axis=1)
        b_largest = tl.max(b_best, axis=1)
        b_argmax = tl.min(tl.where(b_best == b_largest[:, None], b_from + o_col[None, :], 2147483647), axis=1)
        m_null = b_nonzeros == 0
        tl.store(nonzeros + p_row, b_nonzeros, mask=o_t < T)
        tl.store(argmax + p_row, tl.where(m_null, -1, b_argmax), mask=o_t < T)
        tl.store(largest + p_row, tl.where(m_null, 0.0, b_largest * output_scale), mask=o_t < T)
