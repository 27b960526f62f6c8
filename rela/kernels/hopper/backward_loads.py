"""The warp of the backward pass that loads: which queries see the keys of a program, and the copies of their tiles."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def span(seen, i_s, T, S, KEYS: gl.constexpr, QUERIES: gl.constexpr, CAUSAL: gl.constexpr, TABLED: gl.constexpr):
    """First tile of queries, and one past the last, in which any query sees a key of this program."""
    first = 0
    last = T
    if TABLED:
        first = gl.load(seen + i_s) // QUERIES
        last = gl.load(seen + S + gl.minimum(i_s + KEYS, S) - 1)
    elif CAUSAL:
        first = gl.maximum(i_s + T - S, 0) // QUERIES
    return first, (last + QUERIES - 1) // QUERIES


@gluon.jit
def load_keys(tensor, i_b, i_hk, i_s, full, target, ROWS: gl.constexpr, D: gl.constexpr, PARTS: gl.constexpr):
    """Copy the keys or values of two warpgroups or, if a head consists of parts, all parts of those of one."""
    TILES: gl.constexpr = 2 if PARTS == 1 else PARTS
    DOWN: gl.constexpr = ROWS if PARTS == 1 else 0
    ACROSS: gl.constexpr = 0 if PARTS == 1 else D
    for i in gl.static_range(TILES):
        mbarrier.expect(full.index(i), tensor.block_type.nbytes)
        tma.async_copy_global_to_shared(tensor, [i_b, i_hk, i_s + i * DOWN, i * ACROSS], full.index(i), target.index(i))


@gluon.jit
def copy_parts(tensor, i_b, i_h, row, full, target, stage, D: gl.constexpr, PARTS: gl.constexpr):
    """Copy all parts of a tile of queries; the barrier expects their bytes already."""
    for i_p in gl.static_range(PARTS):
        tma.async_copy_global_to_shared(tensor, [i_b, i_h, row, i_p * D], full, target.index(stage * PARTS + i_p))


@gluon.jit
def load_partition(
    arguments,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    DROPPED: gl.constexpr,
    BIASED: gl.constexpr,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    STAGES: gl.constexpr,
    PREFETCH: gl.constexpr,
    D: gl.constexpr,
    PARTS: gl.constexpr,
):
    (
        q,
        k,
        v,
        d_out,
        seen,
        numbers_q,
        s_q,
        s_k,
        s_v,
        s_do,
        s_numbers,
        k_full,
        v_full,
        q_full,
        q_empty,
        do_full,
        do_empty,
        bias,
        s_bias,
        bias_full,
        bias_empty,
        step_b,
        step_h,
        i_b,
        i_hk,
        i_s,
        T,
        S,
    ) = arguments
    load_keys(k, i_b, i_hk, i_s, k_full, s_k, ROWS, D, PARTS)
    load_keys(v, i_b, i_hk, i_s, v_full, s_v, ROWS, D, PARTS)
    stage = 0
    phase = 1
    bias_phase = 1
    first, last = span(seen, i_s, T, S, 2 * ROWS if PARTS == 1 else ROWS, QUERIES, CAUSAL, TABLED)
    for i_g in range(GROUP):
        for i_t in range(first, last):
            mbarrier.wait(q_empty.index(stage), phase)
            if DROPPED:
                mbarrier.expect(q_full.index(stage), PARTS * q.block_type.nbytes + numbers_q.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    numbers_q, [i_b, i_hk * GROUP + i_g, 0, i_t * QUERIES], q_full.index(stage), s_numbers.index(stage)
                )
            else:
                mbarrier.expect(q_full.index(stage), PARTS * q.block_type.nbytes)
            i_h = i_hk * GROUP + i_g
            copy_parts(q, i_b, i_h, i_t * QUERIES, q_full.index(stage), s_q, stage, D, PARTS)
            if BIASED:
                for i_w in gl.static_range(2):
                    mbarrier.wait(bias_empty.index(i_w), bias_phase)
                    mbarrier.expect(bias_full.index(i_w), bias.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        bias,
                        [i_b * step_b, (i_hk * GROUP + i_g) * step_h, i_t * QUERIES, i_s + i_w * ROWS],
                        bias_full.index(i_w),
                        s_bias.index(i_w),
                    )
                bias_phase ^= 1
            mbarrier.wait(do_empty.index(stage), phase)
            mbarrier.expect(do_full.index(stage), PARTS * d_out.block_type.nbytes)
            copy_parts(d_out, i_b, i_h, i_t * QUERIES, do_full.index(stage), s_do, stage, D, PARTS)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
    if PREFETCH:
        # the products run one tile ahead: a tile of zeros follows the last
        mbarrier.wait(q_empty.index(stage), phase)
        mbarrier.expect(q_full.index(stage), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [i_b, i_hk * GROUP, T, 0], q_full.index(stage), s_q.index(stage))
