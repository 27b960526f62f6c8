"""The backward pass. There is no row statistic to differentiate through, so no delta and nothing saved but q, k and v.

    dV = wᵀ dO     dP = dO vᵀ     dS = act'(S) · dP     dQ = dS k · scale     dK = dSᵀ q · scale     dθ = −Σ dS

Here S stands for the scores and w for the weights. Two structures share these kernels. Two passes:
`key_gradient_kernel` gives dK and dV, `query_gradient_kernel` dQ, seven products in all and every sum in a fixed order.
One pass: `key_gradient_kernel` also adds its share of dQ to a float32 buffer by atomic additions, five products, and
the last bits of dQ depend on the order in which programs finish.
"""

from collections.abc import Callable
from typing import Any

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
    seeing_queries,
    seen_gradients,
    seen_keys,
    seen_weights,
    shifted,
    store_rows,
    under_mask,
)
from rela.kernels.attention.tiles import Tiles, key_gradient_tiles, one_pass, query_gradient_tiles
from rela.kernels.conversion import planned as planned_conversion
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.launch import Launch

Gradients = tuple[Tensor | None, Tensor, Tensor, Tensor | None]
"""dQ, dK, dV and dθ, or partial sums of −dθ; the first is None in one of two passes, the last where there is no θ."""
Run = Callable[[Problem, Tensor, Tensor | None], Gradients]
"""Of a problem, dO and zeros in which dQ is added up, None where the function makes them."""


def backward(
    problem: Problem,
    d_out: Tensor,
    deterministic: bool,
    key_tiles: Tiles | None = None,
    query_tiles: Tiles | None = None,
    dq_sums: Tensor | None = None,
) -> Gradients:
    """Gradients of q, k, v and, where there is one, θ.

    `dq_sums` are zeros in float32, heads last in memory, to which dQ is added, where `adds_up_queries`. They are then
    returned as dQ, without a conversion.
    """
    plan = ("backward", deterministic, key_tiles, query_tiles)
    run = problem.memo.get(plan)
    if run is None:
        run = problem.memo[plan] = planned(problem, *plan[1:])
    dq, dk, dv, d_theta = run(problem, d_out, dq_sums)
    if problem.threshold is None or d_theta is None:
        return dq, dk, dv, None
    d_theta = d_theta.sum((0, 2)) * problem.threshold_gradient_scale
    return dq, dk, dv, d_theta.to(problem.threshold.dtype)


def adds_up_queries(problem: Problem, deterministic: bool) -> bool:
    """Whether dQ is added up in float32 by all programs: on Hopper, and in one pass."""
    return not deterministic and (hopper.serves(problem) or one_pass(problem))


def planned(problem: Problem, deterministic: bool, key_tiles: Tiles | None, query_tiles: Tiles | None) -> Run:
    """A function that gives dQ, dK, dV and partial sums of −dθ of this problem, and of all with its layout."""
    if not deterministic and key_tiles is None and query_tiles is None and hopper.serves(problem):
        return hopper.backward
    atomic = not deterministic and one_pass(problem)
    keys = planned_keys(problem, key_tiles or key_gradient_tiles(problem, atomic), atomic)
    if atomic:
        return keys
    queries = planned_queries(problem, query_tiles or query_gradient_tiles(problem))

    def run(problem: Problem, d_out: Tensor, dq_sums: Tensor | None) -> Gradients:
        assert dq_sums is None
        _, dk, dv, _ = keys(problem, d_out, None)
        dq, d_theta = queries(problem, d_out)
        return dq, dk, dv, d_theta

    return run


def all_constants(problem: Problem, tiles: Tiles) -> dict[str, Any]:
    """Sizes and compile-time choices of the kernels here."""
    return {**problem.constants(), **tiles.constants()}


def launch_of(
    problem: Problem,
    name: str,
    kernel: Any,
    programs: int,
    tiles: Tiles,
    d_out: Tensor,
    constants: Callable[[Problem, Tiles], dict[str, Any]] = all_constants,
) -> tuple[Tensor, Launch]:
    """d_out with contiguous rows, and the launch of a kernel, made once for a problem's layout and that of d_out."""
    if d_out.stride(-1) != 1:
        d_out = d_out.contiguous()
    key = name, tiles, d_out.stride(), d_out.dtype, d_out.data_ptr() % 16
    launch = problem.memo.get(key)
    if launch is None:
        launch = problem.memo[key] = Launch(kernel, (programs,), constants(problem, tiles))
    return d_out, launch


def planned_keys(problem: Problem, tiles: Tiles, atomic: bool) -> Run:
    """A function for dK and dV and, with `atomic`, dQ and the partial sums of −dθ as well, in one pass."""
    q, k, v = problem.q, problem.k, problem.v
    (B, H, T, D), (_, Hk, S, _) = q.shape, k.shape
    n_s = ceil_div(S, tiles.keys)
    name = "key gradients in one pass" if atomic else "key gradients"
    strides = tuple(x.stride()[:3] for x in (q, k, v))
    outputs = (T * H * D, D, H * D), (S * Hk * D, D, Hk * D)  # strides of dQ, and of dK and dV
    scales, kind, device = problem.scales(), q.dtype, q.device
    # no tensor outlives its call in `run`
    sums, some, shape = atomic and problem.threshold is not None, k.numel() > 0, k.shape
    queries, converted = q.shape, planned_conversion(q.shape, kind, device)

    def run(problem: Problem, d_out: Tensor, dq_sums: Tensor | None) -> Gradients:
        dk, dv = heads_last(shape, kind, device), heads_last(shape, kind, device)
        dq = heads_last(queries, torch.float32, device).zero_() if atomic and dq_sums is None else dq_sums
        d_theta = torch.empty(B, H, n_s, dtype=torch.float32, device=device) if sums else None
        if some:
            d_out, launch = launch_of(problem, name, key_gradient_kernel, n_s * Hk * B, tiles, d_out)
            launch(
                problem.q,
                problem.k,
                problem.v,
                d_out,
                dq,
                dk,
                dv,
                d_theta,
                *problem.optional_arguments(),
                *scales,
                *strides,
                d_out.stride()[:3],
                *outputs,
            )
        return dq if dq is None or dq_sums is not None else converted(dq), dk, dv, d_theta

    return run


def planned_queries(problem: Problem, tiles: Tiles) -> Callable[[Problem, Tensor], tuple[Tensor, Tensor | None]]:
    """A function for dQ and, where there is a θ, the partial sums of −dθ, [B, H, tiles]."""
    q, k, v = problem.q, problem.k, problem.v
    B, H, T, D = q.shape
    n_t = ceil_div(T, tiles.queries)
    strides = tuple(x.stride()[:3] for x in (q, k, v))
    scales, kind, device = problem.scales(), q.dtype, q.device
    sums, some, shape = problem.threshold is not None, q.numel() > 0, q.shape

    def run(problem: Problem, d_out: Tensor) -> tuple[Tensor, Tensor | None]:
        dq = heads_last(shape, kind, device)
        d_theta = torch.empty(B, H, n_t, dtype=torch.float32, device=device) if sums else None
        if some:
            d_out, launch = launch_of(problem, "query gradients", query_gradient_kernel, n_t * H * B, tiles, d_out)
            launch(
                problem.q,
                problem.k,
                problem.v,
                d_out,
                dq,
                d_theta,
                *problem.optional_arguments(),
                *scales,
                *strides,
                d_out.stride()[:3],
                (T * H * D, D, H * D),
            )
        return dq, d_theta

    return run


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def query_gradient_kernel(
    q,
    k,
    v,
    d_out,
    dq,
    d_theta,
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
        i_t = n_t - 1 - i_t  # the longest rows first
    q = head_of(q, q_strides, i_b, i_h)
    k = head_of(k, k_strides, i_b, i_h // GROUP)
    v = head_of(v, v_strides, i_b, i_h // GROUP)
    d_out = head_of(d_out, d_out_strides, i_b, i_h)
    dq = head_of(dq, dq_strides, i_b, i_h)
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
    b_do = load_rows(d_out, i_t * BT, d_out_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_dq = tl.zeros([BT, BD], dtype=tl.float32)
    b_dtheta = tl.zeros([BT], dtype=tl.float32)
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
            # [BT, BS]
            b_s = shifted(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), score_scale, b_theta)
            o_s = i_s + o_col
            m_seen = None
            if RAGGED:
                m_seen = in_interval(o_t, o_s, b_begin, b_end, T)
                b_s, m_seen = under_mask(
                    b_s, mask, mask_strides, o_t[:, None], o_s[None, :], m_seen, threshold_scale, BIASED
                )
            busy = True
            if SKIP:
                busy = tl.max(tl.abs(seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES))) != 0.0
            if busy:
                b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
                b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
                b_ds = seen_gradients(b_dp, b_s, m_seen, ACTIVATION, RECTIFIES)
                if seed is not None:
                    b_ds = tl.where(kept(key_0, key_1, drop_below, o_t[:, None], o_s[None, :]), b_ds, 0.0)
                if d_theta is not None:
                    b_dtheta += tl.sum(b_ds, axis=1)
                b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision=PRECISION)

    store_rows(dq, i_t * BT, dq_strides[2], o_row, o_d, T, b_dq * gradient_scale, D)
    if d_theta is not None:
        tl.store(d_theta + i_bh.to(tl.int64) * n_t + i_t, tl.sum(b_dtheta, axis=0))


@triton.jit(do_not_specialize=["left", "right", "H", "T", "S", "sequences", "search_steps", "drop_below"])
def key_gradient_kernel(
    q,
    k,
    v,
    d_out,
    dq,
    dk,
    dv,
    d_theta,
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
    dq_strides,
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
    ACTIVATION: tl.constexpr,
    RECTIFIES: tl.constexpr,
    BIASED: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
    SKIP: tl.constexpr,
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
    # whole tiles end at `middle`, because causality cuts at the beginning; only a window cuts at the end, too
    middle = last
    if left is not None:
        middle = tl.min(b_end)
    whole = 0
    if mask is None:
        whole = tl.maximum(middle - tl.max(b_begin), 0) // BT * BT
        if cu_q is not None:
            whole = tl.where(tl.min(b_end) == last, whole, 0)
    if left is not None:
        middle = tl.where(whole > 0, middle, last)
    ragged = tl.cdiv(tl.maximum(middle - whole - first, 0), BT) * BT

    # [BS, BD]; rows that no query sees may hold anything, and dQ multiplies them by zero
    begin, end = 0, S
    if cu_q is not None:
        end = tl.load(cu_k + sequences)
    if key_lengths is not None:
        end = tl.minimum(end, tl.load(key_lengths + i_b).to(tl.int32))
    if key_starts is not None:
        begin = tl.load(key_starts + i_b).to(tl.int32)
    b_k = load_rows(k, i_s * BS, k_strides[2], o_row, o_d, begin, end, D, BD, True)
    b_v = load_rows(v, i_s * BS, v_strides[2], o_row, o_d, begin, end, D, BD, True)
    b_dk = tl.zeros([BS, BD], dtype=tl.float32)
    b_dv = tl.zeros([BS, BD], dtype=tl.float32)
    for i_g in range(GROUP):
        i_h = i_hk * GROUP + i_g
        q_head = head_of(q, q_strides, i_b, i_h)
        d_out_head = head_of(d_out, d_out_strides, i_b, i_h)
        b_theta = None
        if threshold is not None:
            b_theta = tl.load(threshold + i_h).to(tl.float32) * threshold_scale
        if seed is not None:
            key_0, key_1 = dropout_key(seed, i_b, i_h)
        b_dtheta = tl.zeros([BS], dtype=tl.float32)
        PARTS: tl.constexpr = 2 if left is None else 3
        for RAGGED in tl.static_range(PARTS):
            if RAGGED == 2:
                start, stop = middle, last
            elif RAGGED == 1:
                start, stop = middle - whole - ragged, middle - whole
            else:
                start, stop = middle - whole, middle
            for i_t in range(start, stop, BT):
                # [BT, BD]
                b_q = load_rows(q_head, i_t, q_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
                # [BS, BT]
                b_s = shifted(tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION), score_scale, b_theta)
                o_t = i_t + o_col
                m_seen = None
                if RAGGED:
                    m_seen = in_interval(o_s, o_t, b_begin, b_end, S)
                    mask_head = mask
                    if mask is not None:
                        mask_head = head_of(mask, mask_strides, i_b, i_h)
                    b_s, m_seen = under_mask(
                        b_s, mask_head, mask_strides, o_t[None, :], o_s[:, None], m_seen, threshold_scale, BIASED
                    )
                b_w = seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES)
                busy = True
                if SKIP:
                    busy = tl.max(tl.abs(b_w)) != 0.0
                if busy:
                    b_do = load_rows(d_out_head, i_t, d_out_strides[2], o_col, o_d, first, last, D, BD, RAGGED > 0)
                    b_dp = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION)
                    b_ds = seen_gradients(b_dp, b_s, m_seen, ACTIVATION, RECTIFIES)
                    if seed is not None:
                        m_kept = kept(key_0, key_1, drop_below, o_t[None, :], o_s[:, None])
                        b_w = tl.where(m_kept, b_w, 0.0)
                        b_ds = tl.where(m_kept, b_ds, 0.0)
                    if d_theta is not None:
                        b_dtheta += tl.sum(b_ds, axis=1)
                    b_dv = tl.dot(b_w.to(b_do.dtype), b_do, b_dv, input_precision=PRECISION)
                    b_ds = b_ds.to(b_q.dtype)
                    b_dk = tl.dot(b_ds, b_q, b_dk, input_precision=PRECISION)
                    if dq is not None:
                        b_dq = tl.dot(tl.trans(b_ds), b_k, input_precision=PRECISION) * gradient_scale
                        p_dq = head_of(dq, dq_strides, i_b, i_h) + i_t * tl.cast(dq_strides[2], tl.int64)
                        p_dq += o_col[:, None] * dq_strides[2] + o_d[None, :]
                        m_dq = ((o_t >= first) & (o_t < last))[:, None] & (o_d < D)[None, :]
                        tl.atomic_add(p_dq, b_dq, mask=m_dq, sem="relaxed")
        if d_theta is not None:
            tl.store(d_theta + (i_b * H + i_h).to(tl.int64) * n_s + i_s, tl.sum(b_dtheta, axis=0))
    store_rows(dk, i_s * BS, dk_strides[2], o_row, o_d, S, b_dk * gradient_scale, D)
    store_rows(dv, i_s * BS, dk_strides[2], o_row, o_d, S, b_dv * output_scale, D)
