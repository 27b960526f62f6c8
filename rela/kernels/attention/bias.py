"""The gradient of a float mask, which is added to the scores: dBias = dS, summed over what the mask repeats.

One program owns a tile of the mask and loops over the batch elements and heads that share it, so each number is written
once, in a fixed order. Scores and dP are computed anew: two products more, for those who train a bias.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.backward import all_constants, launch_of
from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import (
    dropout_key,
    head_of,
    in_interval,
    kept,
    load_rows,
    seen_gradients,
    seen_keys,
    shifted,
    under_mask,
)
from rela.kernels.attention.tiles import Tiles, exact_tiles


def bias_tiles(problem: Problem) -> Tiles:
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    return Tiles(64, 64 if problem.q.shape[-1] <= 128 else 32, 4, 2)


def bias_gradient(problem: Problem, d_out: Tensor, tiles: Tiles | None = None) -> Tensor:
    """The gradient of the mask that a problem adds to its scores, of its shape and type."""
    mask, q = problem.mask, problem.q
    assert mask is not None
    if not q.numel() or not mask.numel() or not problem.k.numel():
        return torch.zeros_like(mask)
    (B, _, T, _), S = q.shape, problem.k.shape[2]
    tiles = tiles or bias_tiles(problem)
    # along an axis that the mask repeats, each tile leaves its sum
    sum_t, sum_s = mask.shape[2] < T, mask.shape[3] < S
    n_t, n_s = ceil_div(T, tiles.queries), ceil_div(S, tiles.keys)
    parts = torch.empty(*mask.shape[:2], n_t if sum_t else T, n_s if sum_s else S, dtype=torch.float32, device=q.device)
    programs = n_t * n_s * mask.shape[0] * mask.shape[1]

    def constants(problem: Problem, tiles: Tiles) -> dict[str, Any]:
        mine = {**all_constants(problem, tiles), "SUM_T": sum_t, "SUM_S": sum_s}
        del mine["SKIP"]
        return mine

    d_out, launch = launch_of(problem, "bias gradient", bias_gradient_kernel, programs, tiles, d_out, constants)
    launch(
        q,
        problem.k,
        problem.v,
        d_out,
        parts,
        *problem.optional_arguments(),
        *problem.scales(),
        q.stride()[:3],
        problem.k.stride()[:3],
        problem.v.stride()[:3],
        d_out.stride()[:3],
        B,
        *mask.shape[:2],
    )
    summed = [axis for axis, is_summed in ((2, sum_t), (3, sum_s)) if is_summed]
    total = parts.sum(summed, keepdim=True) if summed else parts
    return (total * -problem.threshold_gradient_scale).to(mask.dtype)


@triton.jit(do_not_specialize=["left", "right", "B", "mask_b", "mask_h", "H", "T", "S", "sequences", "drop_below"])
def bias_gradient_kernel(
    q,
    k,
    v,
    d_out,
    d_bias,
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
    d_out_strides,
    B,
    mask_b,
    mask_h,
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
    SUM_T: tl.constexpr,
    SUM_S: tl.constexpr,
):
    n_t = tl.cdiv(T, BT)
    n_s = tl.cdiv(S, BS)
    i_s = tl.program_id(0) % n_s
    i_t = tl.program_id(0) // n_s % n_t
    i_m = tl.program_id(0) // n_s // n_t
    # the batch elements and heads that this matrix of the mask serves
    share_b = B // mask_b
    share_h = H // mask_h
    o_row = tl.arange(0, BT)
    o_col = tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    o_t = i_t * BT + o_row
    o_s = i_s * BS + o_col
    b_sum = tl.zeros([BT, BS], dtype=tl.float32)
    for i in range(share_b * share_h):
        i_b = i_m // mask_h * share_b + i // share_h
        i_h = i_m % mask_h * share_h + i % share_h
        b_begin, b_end = seen_keys(
            tl.minimum(o_t, T - 1),
            i_b,
            T,
            S,
            sequences,
            None,
            None,
            search_steps,
            key_lengths,
            key_starts,
            left,
            right,
            CAUSAL,
        )
        if (tl.min(b_begin) < i_s * BS + BS) & (tl.max(b_end) > i_s * BS):
            q_head = head_of(q, q_strides, i_b, i_h)
            k_head = head_of(k, k_strides, i_b, i_h // GROUP)
            v_head = head_of(v, v_strides, i_b, i_h // GROUP)
            d_out_head = head_of(d_out, d_out_strides, i_b, i_h)
            # [BT, BD], [BS, BD]; only rows that are seen, for the others may hold anything
            b_q = load_rows(q_head, i_t * BT, q_strides[2], o_row, o_d, 0, T, D, BD, True)
            b_do = load_rows(d_out_head, i_t * BT, d_out_strides[2], o_row, o_d, 0, T, D, BD, True)
            first, last = tl.min(b_begin), tl.minimum(tl.max(b_end), S)
            b_k = load_rows(k_head, i_s * BS, k_strides[2], o_col, o_d, first, last, D, BD, True)
            b_v = load_rows(v_head, i_s * BS, v_strides[2], o_col, o_d, first, last, D, BD, True)
            b_theta = None
            if threshold is not None:
                b_theta = tl.load(threshold + i_h).to(tl.float32) * threshold_scale
            # [BT, BS]
            b_s = shifted(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), score_scale, b_theta)
            m_seen = in_interval(o_t, o_s, b_begin, b_end, T)
            mask_head = head_of(mask, mask_strides, i_b, i_h)
            b_s, m_seen = under_mask(
                b_s, mask_head, mask_strides, o_t[:, None], o_s[None, :], m_seen, threshold_scale, True
            )
            b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
            b_ds = seen_gradients(b_dp, b_s, m_seen, ACTIVATION, RECTIFIES)
            if seed is not None:
                key_0, key_1 = dropout_key(seed, i_b, i_h)
                b_ds = tl.where(kept(key_0, key_1, drop_below, o_t[:, None], o_s[None, :]), b_ds, 0.0)
            b_sum += b_ds
    d_bias += i_m.to(tl.int64) * (n_t if SUM_T else T) * (n_s if SUM_S else S)
    if SUM_T and SUM_S:
        tl.store(d_bias + i_t * n_s + i_s, tl.sum(tl.sum(b_sum, axis=1), axis=0))
    elif SUM_T:
        tl.store(d_bias + i_t.to(tl.int64) * S + o_s, tl.sum(b_sum, axis=0), mask=o_s < S)
    elif SUM_S:
        tl.store(d_bias + o_t.to(tl.int64) * n_s + i_s, tl.sum(b_sum, axis=1), mask=o_t < T)
    else:
        p_bias = d_bias + o_t[:, None].to(tl.int64) * S + o_s[None, :]
        tl.store(p_bias, b_sum, mask=(o_t < T)[:, None] & (o_s < S)[None, :])
