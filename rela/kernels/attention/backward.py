"""The backward pass. There is no row statistic to differentiate through, so no delta and nothing saved but q, k and v.

    dV = wᵀ dO     dP = dO vᵀ     dS = act'(S) · dP     dQ = dS k · scale     dK = dSᵀ q · scale     dθ = −Σ dS

Here S stands for the scores and w for the weights. Two structures share these kernels. Two passes:
`key_gradient_kernel` gives dK and dV, `query_gradient_kernel` dQ, seven products in all and every sum in a fixed order.
One pass: `key_gradient_kernel` also adds its share of dQ to a float32 buffer by atomic additions, five products, and
the last bits of dQ depend on the order in which programs finish.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import (
    dropout_key,
    head_of,
    kept,
    load_mask,
    load_rows,
    seeing_queries,
    seen_gradients,
    seen_keys,
    seen_weights,
    shifted,
    store_rows,
)
from rela.kernels.attention.tiles import Tiles, key_gradient_tiles, one_pass, query_gradient_tiles
from rela.kernels.hopper import dispatch as hopper

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def backward(
    problem: Problem,
    d_out: Tensor,
    deterministic: bool,
    key_tiles: Tiles | None = None,
    query_tiles: Tiles | None = None,
) -> Gradients:
    """Gradients of q, k, v and θ; the last is empty where there is no θ."""
    if not deterministic and key_tiles is None and query_tiles is None and hopper.serves(problem):
        dq, dk, dv, d_theta = hopper.backward(problem, d_out)
    else:
        atomic = not deterministic and one_pass(problem)
        if d_out.stride(-1) != 1:
            d_out = d_out.contiguous()
        dk, dv, dq, d_theta = key_gradients(problem, d_out, atomic, key_tiles or key_gradient_tiles(problem, atomic))
        if not atomic:
            dq, d_theta = query_gradients(problem, d_out, query_tiles or query_gradient_tiles(problem))
    if problem.threshold is None:
        return dq, dk, dv, problem.q.new_empty(0)
    d_theta = d_theta.sum((0, 2)) * problem.threshold_gradient_scale
    return dq, dk, dv, d_theta.to(problem.threshold.dtype)


def key_gradients(problem: Problem, d_out: Tensor, atomic: bool, tiles: Tiles) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dK and dV and, with `atomic`, dQ and the partial sums of −dθ as well."""
    q, k, v = problem.q, problem.k, problem.v
    (B, H, _, _), (_, Hk, S, _) = q.shape, k.shape
    dk, dv = problem.like_keys(), problem.like_keys()
    dq = problem.like_queries(torch.float32 if atomic else q.dtype)
    n_s = ceil_div(S, tiles.keys)
    d_theta = torch.empty(B, H, n_s if atomic else 0, dtype=torch.float32, device=q.device)
    if atomic:
        dq.zero_()
    if k.numel():
        key_gradient_kernel[(n_s * Hk * B,)](
            q,
            k,
            v,
            d_out,
            dq if atomic else None,
            dk,
            dv,
            d_theta if atomic and problem.threshold is not None else None,
            *problem.optional_tensors(),
            *problem.scales(),
            q.stride()[:3],
            k.stride()[:3],
            v.stride()[:3],
            d_out.stride()[:3],
            dq.stride()[:3],
            dk.stride()[:3],
            **problem.constants(),
            **tiles.constants(),
        )
    return dk, dv, dq.to(q.dtype), d_theta


def query_gradients(problem: Problem, d_out: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """dQ and the partial sums of −dθ, [B, H, tiles]."""
    q, k, v = problem.q, problem.k, problem.v
    B, H, T, _ = q.shape
    dq = problem.like_queries(q.dtype)
    n_t = ceil_div(T, tiles.queries)
    d_theta = torch.empty(B, H, n_t, dtype=torch.float32, device=q.device)
    if q.numel():
        query_gradient_kernel[(n_t * H * B,)](
            q,
            k,
            v,
            d_out,
            dq,
            None if problem.threshold is None else d_theta,
            *problem.optional_tensors(),
            *problem.scales(),
            q.stride()[:3],
            k.stride()[:3],
            v.stride()[:3],
            d_out.stride()[:3],
            dq.stride()[:3],
            **problem.constants(),
            **tiles.constants(),
        )
    return dq, d_theta


@triton.jit(do_not_specialize=["H", "T", "S", "sequences", "search_steps", "drop_below"])
def query_gradient_kernel(
    q,
    k,
    v,
    d_out,
    dq,
    d_theta,
    threshold,
    key_lengths,
    mask,
    cu_q,
    cu_k,
    seed,
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
        tl.minimum(o_t, T - 1), i_b, T, S, sequences, cu_q, cu_k, search_steps, key_lengths, CAUSAL
    )
    first = tl.min(b_begin)
    last = tl.max(b_end)
    whole = 0
    if mask is None:
        whole = tl.maximum(tl.min(b_end) - first, 0) // BS * BS
        if cu_q is not None:
            whole = tl.where(tl.max(b_begin) == first, whole, 0)

    # [BT, BD]
    b_q = load_rows(q, i_t * BT, q_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_do = load_rows(d_out, i_t * BT, d_out_strides[2], o_row, o_d, 0, T, D, BD, True)
    b_dq = tl.zeros([BT, BD], dtype=tl.float32)
    b_dtheta = tl.zeros([BT], dtype=tl.float32)
    for RAGGED in tl.static_range(2):
        if RAGGED:
            start, stop = first + whole, last
        else:
            start, stop = first, first + whole
        for i_s in range(start, stop, BS):
            # [BS, BD]
            b_k = load_rows(k, i_s, k_strides[2], o_col, o_d, first, last, D, BD, RAGGED)
            # [BT, BS]
            b_s = shifted(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), score_scale, b_theta)
            o_s = i_s + o_col
            m_seen = None
            if RAGGED:
                m_seen = (o_s[None, :] >= b_begin[:, None]) & (o_s[None, :] < b_end[:, None]) & (o_t < T)[:, None]
                if mask is not None:
                    m_seen = load_mask(mask, mask_strides, o_t[:, None], o_s[None, :], m_seen)
            busy = True
            if SKIP:
                busy = tl.max(tl.abs(seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES))) != 0.0
            if busy:
                b_v = load_rows(v, i_s, v_strides[2], o_col, o_d, first, last, D, BD, RAGGED)
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


@triton.jit(do_not_specialize=["H", "T", "S", "sequences", "search_steps", "drop_below"])
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
    mask,
    cu_q,
    cu_k,
    seed,
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
        tl.minimum(o_s, S - 1), i_b, T, S, sequences, cu_q, cu_k, search_steps, key_lengths, CAUSAL
    )
    first = tl.min(b_begin)
    last = tl.max(b_end)
    # whole tiles end at `last`, because causality cuts at the beginning
    whole = 0
    if mask is None:
        whole = tl.maximum(last - tl.max(b_begin), 0) // BT * BT
        if cu_q is not None:
            whole = tl.where(tl.min(b_end) == last, whole, 0)
    ragged = tl.cdiv(tl.maximum(last - whole - first, 0), BT) * BT

    # [BS, BD]; rows behind the last sequence may hold anything, and dQ multiplies them by zero
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
        b_theta = None
        if threshold is not None:
            b_theta = tl.load(threshold + i_h).to(tl.float32) * threshold_scale
        if seed is not None:
            key_0, key_1 = dropout_key(seed, i_b, i_h)
        b_dtheta = tl.zeros([BS], dtype=tl.float32)
        for RAGGED in tl.static_range(2):
            if RAGGED:
                start, stop = last - whole - ragged, last - whole
            else:
                start, stop = last - whole, last
            for i_t in range(start, stop, BT):
                # [BT, BD]
                b_q = load_rows(q_head, i_t, q_strides[2], o_col, o_d, first, last, D, BD, RAGGED)
                # [BS, BT]
                b_s = shifted(tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION), score_scale, b_theta)
                o_t = i_t + o_col
                m_seen = None
                if RAGGED:
                    m_seen = (o_t[None, :] >= b_begin[:, None]) & (o_t[None, :] < b_end[:, None]) & (o_s < S)[:, None]
                    if mask is not None:
                        m_seen = load_mask(
                            head_of(mask, mask_strides, i_b, i_h), mask_strides, o_t[None, :], o_s[:, None], m_seen
                        )
                b_w = seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES)
                busy = True
                if SKIP:
                    busy = tl.max(tl.abs(b_w)) != 0.0
                if busy:
                    b_do = load_rows(d_out_head, i_t, d_out_strides[2], o_col, o_d, first, last, D, BD, RAGGED)
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
