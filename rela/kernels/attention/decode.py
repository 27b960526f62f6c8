"""Decoding: a few query rows against a long cache of keys, split over the keys.

There is no softmax to renormalise, so the parts of the keys simply add up. A program handles the queries of all heads
that share a key head, and loads a row of V only if one of them gives it a weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div, heads_last, power_of_2, processors
from rela.kernels.attention.scores import head_of, load_rows, seen_keys, seen_weights, shifted
from rela.kernels.early_launch import early, let_next_start, wait_for_results
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.launch import Launch


@dataclass(frozen=True)
class Split:
    """How the keys are cut: programs for each multiprocessor, bytes of a tile of keys, warps, pipeline stages."""

    programs: int = 4
    tile_bytes: int = 8192
    warps: int = 2
    stages: int = 4


DEFAULT_SPLIT = Split()


def decode(problem: Problem, splits: int | None = None, split: Split | None = None) -> Tensor:
    """The context of a few queries, [B, H, T, D].

    The keys are cut into `splits` parts, or as many as fill the device. With an explicit `split` the plain kernel runs,
    whatever the device is.
    """
    plan = ("decode", splits, split)
    run = problem.memo.get(plan)
    if run is None:
        run = problem.memo[plan] = planned(problem, splits, split)
    return run(problem)


class Parts(NamedTuple):
    """The first launch of decoding, which leaves the context in as many parts as the keys."""

    fill: Callable[[Problem], Tensor]
    """The parts [splits, B, T, H, D] of a problem's context, in float32; it must have elements."""
    splits: int


def planned(problem: Problem, splits: int | None = None, split: Split | None = None) -> Callable[[Problem], Tensor]:
    """A function that decodes this problem, and all that differ from it in their numbers alone."""
    parts, q = planned_parts(problem, splits, split), problem.q
    splits = parts.splits
    summed = {"ROWS": min(128, power_of_2(splits)), "num_warps": 4, **early(True, q)}
    sum_up = Launch(sum_kernel, (ceil_div(q.numel(), 64),), summed)
    shape, kind, device, count = q.shape, q.dtype, q.device, q.numel()

    def run(problem: Problem) -> Tensor:
        out = heads_last(shape, kind, device)
        if count:
            sum_up(parts.fill(problem), out, splits, count)
        return out

    return run


def planned_parts(problem: Problem, splits: int | None = None, split: Split | None = None) -> Parts:
    """The first launch for this problem, and for all that differ from it in their numbers alone.

    The next launch may begin early (`rela.kernels.early_launch`).
    """
    q, k, v = problem.q, problem.k, problem.v
    (B, H, T, D), (_, Hk, S, _) = q.shape, k.shape
    fits_hopper = split is None and hopper.serves_decoding(problem)
    split = split or DEFAULT_SPLIT
    BD = max(16, power_of_2(D))
    BS = max(16, min(128, split.tile_bytes // (BD * q.element_size())))
    if splits is None:
        # one wave: a program more than fit at once would make all others wait
        splits = split.programs * processors(q.device) // max(1, B * Hk)
    tiles = ceil_div(S, BS)
    splits = max(1, min(splits, tiles))
    score_scale, threshold_scale, output_scale, _ = problem.scales()
    constants: dict[str, Any] = {
        "GROUP": H // Hk,
        "D": D,
        "BD": BD,
        "BR": max(16, power_of_2(H // Hk * T)),
        "BS": BS,
        "ACTIVATION": problem.activation,
        "RECTIFIES": problem.record.rectifies,
        "CAUSAL": problem.causal and T > 1,  # the last query of all sees every key
        "PRECISION": "ieee",  # of float32 alone; memory is the bound here, and exactness is free
        "num_warps": split.warps,
        "num_stages": split.stages,
        **early(True, q, first=True),
    }
    on_hopper = hopper.planned_decode_parts(problem, splits) if fits_hopper else None
    start = Launch(decode_kernel, (splits * Hk * B,), constants)
    fixed = score_scale, threshold_scale, output_scale, *(x.stride()[:3] for x in (q, k, v))
    sizes = B, T, S, splits, ceil_div(tiles, splits) * BS, Hk
    shape, strides, device = (splits, B, T, H, D), (B * T * H * D, T * H * D, H * D, D, 1), q.device

    def fill(problem: Problem) -> Tensor:
        parts = torch.empty_strided(shape, strides, dtype=torch.float32, device=device)
        if on_hopper is not None:
            on_hopper(problem, parts)
        else:
            given = problem.threshold, problem.key_lengths, problem.key_starts, problem.left
            start(problem.q, problem.k, problem.v, parts, *given, *fixed, *sizes)
        return parts

    return Parts(fill, splits)


@triton.jit(do_not_specialize=["splits", "n"])
def sum_kernel(parts, out, splits, n, ROWS: tl.constexpr, EARLY: tl.constexpr):
    """out = parts.sum(0), rounded once; ROWS parts are loaded at a time, as a load takes longer than all the sums."""
    o = tl.program_id(0) * 64 + tl.arange(0, 64)
    o_row = tl.arange(0, ROWS)
    b_sum = tl.zeros([ROWS, 64], dtype=tl.float32)
    wait_for_results(EARLY)
    for i in range(0, splits, ROWS):
        p_parts = parts + (i + o_row[:, None]) * tl.cast(n, tl.int64) + o[None, :]
        b_sum += tl.load(p_parts, mask=(i + o_row < splits)[:, None] & (o < n)[None, :], other=0.0)
    tl.store(out + o, tl.sum(b_sum, axis=0).to(out.dtype.element_ty), mask=o < n)


@triton.jit(do_not_specialize=["left", "B", "T", "S", "splits", "length", "Hk"])
def decode_kernel(
    q,
    k,
    v,
    parts,
    threshold,
    key_lengths,
    key_starts,
    left,
    score_scale,
    threshold_scale,
    output_scale,
    q_strides,
    k_strides,
    v_strides,
    B,
    T,
    S,
    splits,
    length,
    Hk,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BR: tl.constexpr,
    BS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RECTIFIES: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_split = tl.program_id(0) % splits
    i_hk = tl.program_id(0) // splits % Hk
    i_b = tl.program_id(0) // splits // Hk
    k = head_of(k, k_strides, i_b, i_hk)
    v = head_of(v, v_strides, i_b, i_hk)
    o_col = tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    # row r of the tile is query r // GROUP of head i_hk · GROUP + r % GROUP
    o_row = tl.arange(0, BR)
    o_t = o_row // GROUP
    o_h = i_hk * GROUP + o_row % GROUP
    m_row = (o_t < T)[:, None] & (o_d < D)[None, :]
    # [BR, BD]
    p_q = q + i_b.to(tl.int64) * q_strides[0] + o_h[:, None].to(tl.int64) * q_strides[1]
    b_q = tl.load(p_q + o_t[:, None].to(tl.int64) * q_strides[2] + o_d[None, :], mask=m_row, other=0.0)
    b_theta = None
    if threshold is not None:
        b_theta = tl.load(threshold + o_h).to(tl.float32)[:, None] * threshold_scale
    b_begin, b_end = seen_keys(
        tl.minimum(o_t, T - 1), i_b, T, S, B, None, None, 0, key_lengths, key_starts, left, None, CAUSAL
    )
    first = tl.maximum(i_split * length, tl.min(b_begin))
    last = tl.minimum(i_split * length + length, tl.max(b_end))
    b_out = tl.zeros([BR, BD], dtype=tl.float32)
    for i_s in range(first, last, BS):
        # [BS, BD]
        b_k = load_rows(k, i_s, k_strides[2], o_col, o_d, first, last, D, BD, True)
        # [BR, BS]
        b_s = shifted(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), score_scale, b_theta)
        o_s = i_s + o_col
        m_seen = (o_t < T)[:, None] & (o_s < last)[None, :]
        if CAUSAL or left is not None:
            m_seen = m_seen & (o_s[None, :] >= b_begin[:, None]) & (o_s[None, :] < b_end[:, None])
        b_w = seen_weights(b_s, m_seen, ACTIVATION, RECTIFIES)
        # a masked row of V costs no traffic
        m_v = (tl.max(tl.abs(b_w), axis=0) != 0.0)[:, None] & (o_d < D)[None, :]
        p_v = v + i_s * tl.cast(v_strides[2], tl.int64) + o_col[:, None] * v_strides[2] + o_d[None, :]
        b_v = tl.load(p_v, mask=m_v, other=0.0)
        b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)
    # parts are [splits, B, T, H, D]
    H = Hk * GROUP
    o_out = ((i_split * B + i_b).to(tl.int64) * T + o_t[:, None]) * H + o_h[:, None]
    tl.store(parts + o_out * D + o_d[None, :], b_out * output_scale, mask=m_row)
