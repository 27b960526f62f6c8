"""The warpgroups of the backward pass for heads that consist of parts: one for dK, one for dV and dQ.

Both have keys as rows. The one for dV computes Sᵀ and leaves the weights wᵀ in shared memory. The one for dK computes
dPᵀ and puts dSᵀ where wᵀ was; dSᵀ and the keys are the operands of dQ, which is added to a float32 buffer in pieces of
64 columns.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from rela.kernels.hopper.backward_loads import span
from rela.kernels.hopper.backward_products import async_add_shared_to_global, ranges, rectified_gradient
from rela.kernels.hopper.dropout import rectified_kept
from rela.kernels.hopper.mask import load_words, seen_only
from rela.kernels.hopper.tile_operations import clear_rows, rectified


@gluon.jit
def products_of_parts(s_rows, s_columns, i_columns, b_none, D: gl.constexpr, PARTS: gl.constexpr):
    """Products of all parts of rows with those of columns, in flight."""
    b_sum = b_none
    for i_p in gl.static_range(PARTS):
        rows = s_rows.index(i_p).reshape([b_none.shape[0], D])
        columns = s_columns.index(i_columns * PARTS + i_p).reshape([b_none.shape[1], D])
        b_sum = warpgroup_mma(rows, columns.permute((1, 0)), b_sum, use_acc=i_p > 0, is_async=True)
    return b_sum


@gluon.jit
def add_to_parts(b_left, s_right, i_right, b_parts, D: gl.constexpr, PARTS: gl.constexpr):
    """Parts of a gradient with the products of b_left and the parts on the right, in flight."""
    b_more = ()
    for i_p in gl.static_range(PARTS):
        right = s_right.index(i_right * PARTS + i_p).reshape([b_left.shape[1], D])
        b_more += (warpgroup_mma(b_left, right, b_parts[i_p], is_async=True),)  # type: ignore[assignment]
    return b_more


@gluon.jit
def ended_parts(b_left, b_parts, IN_FLIGHT: gl.constexpr, PARTS: gl.constexpr):
    """The parts when all but IN_FLIGHT later products have ended."""
    b_ended = ()
    for i_p in gl.static_range(PARTS):
        b_part, b_left = warpgroup_mma_wait(PARTS - 1 - i_p + IN_FLIGHT, [b_parts[i_p], b_left])
        b_ended += (b_part,)  # type: ignore[assignment]
    return b_ended


@gluon.jit
def query_gradient(ds_tile, s_k, i_c: gl.constexpr, b_nothing, ROWS: gl.constexpr, D: gl.constexpr):
    """Columns 64 i_c … of a tile of dQ, in flight."""
    k_part = s_k.index(i_c * 64 // D).reshape([ROWS, D])
    if D == 128:
        k_part = k_part.slice(i_c % 2 * 64, 64, 1)
    return warpgroup_mma(ds_tile, k_part, b_nothing, use_acc=False, is_async=True)


@gluon.jit
def clear_parts(s_rows, i_rows, full, phase, last, QUERIES: gl.constexpr, D: gl.constexpr, PARTS: gl.constexpr):
    """Write zeros to the rows of a tile of queries from `last` on."""
    mbarrier.wait(full.index(i_rows), phase)
    for i_p in gl.static_range(PARTS):
        clear_rows(s_rows.index(i_rows * PARTS + i_p).reshape([QUERIES, D]), 0, last)


@gluon.jit
def store_parts(target, place, s_tile, b_parts, scale, ROWS: gl.constexpr, D: gl.constexpr, PARTS: gl.constexpr):
    """Write the parts of a gradient to global memory, through a tile that is no longer needed."""
    for i_p in gl.static_range(PARTS):
        s_tile.index(i_p).reshape([ROWS, D]).store((b_parts[i_p] * scale).to(s_tile.dtype))
    fence_async_shared()
    i_b, i_hk, i_s = place
    for i_p in gl.static_range(PARTS):
        tma.async_copy_shared_to_global(target, [i_b, i_hk, i_s, i_p * D], s_tile.index(i_p))
    tma.store_wait(0)


@gluon.jit
def value_partition(
    arguments,
    ENDED: gl.constexpr,
    STARTED: gl.constexpr,
    MASKED: gl.constexpr,
    DROPPED: gl.constexpr,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    PACKED: gl.constexpr,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    STAGES: gl.constexpr,
):
    (
        dq,
        dv,
        seen,
        end_q,
        end_k,
        numbers_k,
        drop_below,
        s_q,
        s_k,
        s_do,
        s_w,
        s_dq,
        s_numbers,
        k_full,
        q_full,
        q_empty,
        do_full,
        do_empty,
        w_full,
        ds_full,
        threshold,
        threshold_scale,
        score_scale,
        output_scale,
        gradient_scale,
        words,
        step_b,
        step_h,
        starts,
        i_b,
        i_hk,
        i_s,
        H,
        T,
        S,
    ) = arguments
    dtype: gl.constexpr = s_q.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    q_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    column_layout: gl.constexpr = gl.SliceLayout(0, s_layout)
    b_none = gl.zeros([ROWS, QUERIES], gl.float32, s_layout)
    b_nothing = gl.zeros([QUERIES, 64], gl.float32, q_layout)
    b_dv = ()
    for _ in gl.static_range(PARTS):
        b_dv += (gl.zeros([ROWS, D], gl.float32, d_layout),)  # type: ignore[assignment]
    o_s = i_s + gl.arange(0, ROWS, row_layout)
    o_row = o_s + T - S
    o_col = gl.arange(0, QUERIES, column_layout)
    stage = 0
    phase = 0
    buffer = 0
    ds_phase = 0
    first, whole, whole_end, n_t = ranges(seen, i_s, i_s, T, S, ROWS, ROWS, QUERIES, CAUSAL, TABLED)
    total = 0
    if PACKED:
        total = gl.load(end_q)
    if TABLED:
        b_first = gl.load(seen + gl.minimum(o_s, S - 1))
        b_last = gl.load(seen + S + gl.minimum(o_s, S - 1))
    for i_p in gl.static_range(PARTS):
        mbarrier.wait(k_full.index(i_p), 0)
    if ENDED or STARTED:
        begin = -i_s
        end = S - i_s
        if STARTED:
            begin += gl.load(starts + i_b).to(gl.int32)
        if ENDED:
            end = gl.load(end_k + i_b).to(gl.int32) - i_s
        if (begin > 0) | (end < ROWS):
            for i_p in gl.static_range(PARTS):
                clear_rows(s_k.index(i_p).reshape([ROWS, D]), begin, end)
    PIECES: gl.constexpr = PARTS * D // 64  # of a tile of dQ
    TILES: gl.constexpr = 128 // QUERIES  # in the columns of one group of words
    n_words = (T + 127) // 128
    for i_g in range(GROUP):
        i_h = i_hk * GROUP + i_g
        if SHIFTED:
            b_theta = gl.load(threshold + i_h).to(gl.float32) * threshold_scale
        if DROPPED:
            n_k = (S + 127) // 128 * 128
            b_number = gl.load(numbers_k + (i_b * H + i_h).to(gl.int64) * n_k + o_s)
        if MASKED:
            i_m = i_b * step_b + i_h * step_h
            b_words = load_words(words, i_m, first // TILES, i_s, n_words, S, ROWS, QUERIES)
        # ragged, whole, ragged
        for PART in gl.static_range(3):
            start = first
            stop = whole
            if PART == 1:
                start = whole
                stop = whole_end
            if PART == 2:
                start = whole_end
                stop = n_t
            if PART == 1 or TABLED or (CAUSAL and PART == 0):
                for i_t in range(start, stop):
                    if PACKED and PART != 1:  # noqa: SIM102  one is known when compiling, the other is not
                        if (i_t + 1) * QUERIES > total:
                            clear_parts(s_q, stage, q_full, phase, total - i_t * QUERIES, QUERIES, D, PARTS)
                            clear_parts(s_do, stage, do_full, phase, total - i_t * QUERIES, QUERIES, D, PARTS)
                    mbarrier.wait(q_full.index(stage), phase)
                    b_s = products_of_parts(s_k, s_q, stage, b_none, D, PARTS)
                    if DROPPED:
                        b_numbers = s_numbers.index(stage).reshape([QUERIES]).load(column_layout)
                        fence_async_shared()
                    b_s = warpgroup_mma_wait(0, [b_s])
                    mbarrier.arrive(q_empty.index(stage))
                    if SCALED:
                        b_s = b_s * score_scale
                    if SHIFTED:
                        b_s = b_s - b_theta
                    o_t = i_t * QUERIES + o_col
                    if TABLED and PART != 1:
                        b_s = gl.where((o_t[None, :] >= b_first[:, None]) & (o_t[None, :] < b_last[:, None]), b_s, 0.0)
                    elif PART != 1:
                        b_s = gl.where(o_t[None, :] >= o_row[:, None], b_s, 0.0)
                    if DROPPED:
                        b_w = rectified_kept(b_s, b_number, b_numbers, drop_below, dtype)
                    else:
                        b_w = rectified(b_s, dtype)
                    if MASKED:
                        if TILES == 2:
                            b_words = b_words >> (i_t % 2 * 8)
                        b_w = seen_only(b_w, b_words)
                        b_words = load_words(words, i_m, (i_t + 1) // TILES, i_s, n_words, S, ROWS, QUERIES)
                    s_w.index(buffer).store(b_w)
                    mbarrier.arrive(w_full.index(buffer))
                    mbarrier.wait(do_full.index(stage), phase)
                    b_left = gl.convert_layout(b_w, w_layout, assert_trivial=True)
                    b_dv = add_to_parts(b_left, s_do, stage, b_dv, D, PARTS)
                    mbarrier.wait(ds_full.index(buffer), ds_phase)
                    ds_tile = s_w.index(buffer).permute((1, 0))
                    b_next = query_gradient(ds_tile, s_k, 0, b_nothing, ROWS, D)
                    for i_c in gl.static_range(PIECES):
                        b_dq = b_next
                        if i_c + 1 < PIECES:
                            b_next = query_gradient(ds_tile, s_k, i_c + 1, b_nothing, ROWS, D)
                        if i_c == 0:
                            b_dv = ended_parts(b_left, b_dv, 2, PARTS)
                            mbarrier.arrive(do_empty.index(stage))
                        b_dq = warpgroup_mma_wait(1 if i_c + 1 < PIECES else 0, [b_dq])
                        tma.store_wait(0)
                        s_dq.reshape([QUERIES, 64]).store(b_dq * gradient_scale)
                        fence_async_shared()
                        async_add_shared_to_global(dq, [i_b, i_h, i_t * QUERIES, i_c * 64], s_dq)
                    buffer ^= 1
                    if buffer == 0:
                        ds_phase ^= 1
                    stage += 1
                    if stage == STAGES:
                        stage = 0
                        phase ^= 1
    store_parts(dv, (i_b, i_hk, i_s), s_k, b_dv, output_scale, ROWS, D, PARTS)


@gluon.jit
def key_partition(
    arguments,
    SHIFTED: gl.constexpr,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    PACKED: gl.constexpr,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    STAGES: gl.constexpr,
):
    (
        dk,
        seen,
        end_q,
        s_q,
        s_v,
        s_do,
        s_w,
        v_full,
        q_full,
        q_empty,
        do_full,
        do_empty,
        w_full,
        ds_full,
        d_theta,
        gradient_scale,
        i_b,
        i_hk,
        i_s,
        H,
        T,
        S,
    ) = arguments
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    b_none = gl.zeros([ROWS, QUERIES], gl.float32, s_layout)
    b_dk = ()
    for _ in gl.static_range(PARTS):
        b_dk += (gl.zeros([ROWS, D], gl.float32, d_layout),)  # type: ignore[assignment]
    stage = 0
    phase = 0
    buffer = 0
    w_phase = 0
    first, n_t = span(seen, i_s, T, S, ROWS, QUERIES, CAUSAL, TABLED)
    total = 0
    if PACKED:
        total = gl.load(end_q)
    for i_p in gl.static_range(PARTS):
        mbarrier.wait(v_full.index(i_p), 0)
    for i_g in range(GROUP):
        if SHIFTED:
            b_dtheta = gl.zeros([ROWS], gl.float32, row_layout)
        for i_t in range(first, n_t):
            if PACKED:  # noqa: SIM102  one is known when compiling, the other is not
                if (i_t + 1) * QUERIES > total:
                    clear_parts(s_q, stage, q_full, phase, total - i_t * QUERIES, QUERIES, D, PARTS)
                    clear_parts(s_do, stage, do_full, phase, total - i_t * QUERIES, QUERIES, D, PARTS)
            mbarrier.wait(do_full.index(stage), phase)
            b_dp = products_of_parts(s_v, s_do, stage, b_none, D, PARTS)
            mbarrier.wait(w_full.index(buffer), w_phase)
            b_w = s_w.index(buffer).load(s_layout)
            b_dp = warpgroup_mma_wait(0, [b_dp])
            mbarrier.arrive(do_empty.index(stage))
            b_ds = rectified_gradient(b_dp, b_w)
            s_w.index(buffer).store(b_ds)
            fence_async_shared()
            mbarrier.arrive(ds_full.index(buffer))
            if SHIFTED:
                b_dtheta += gl.sum(gl.where(b_w != 0.0, b_dp, 0.0), axis=1)
            mbarrier.wait(q_full.index(stage), phase)
            b_right = gl.convert_layout(b_ds, w_layout, assert_trivial=True)
            b_dk = add_to_parts(b_right, s_q, stage, b_dk, D, PARTS)
            b_dk = ended_parts(b_right, b_dk, 0, PARTS)
            mbarrier.arrive(q_empty.index(stage))
            buffer ^= 1
            if buffer == 0:
                w_phase ^= 1
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
        if SHIFTED:
            n_s = (S + ROWS - 1) // ROWS
            i_part = ((i_b * H + i_hk * GROUP + i_g) * n_s + i_s // ROWS).to(gl.int64)
            gl.store(d_theta + i_part, gl.sum(b_dtheta, axis=0))
    store_parts(dk, (i_b, i_hk, i_s), s_v, b_dk, gradient_scale, ROWS, D, PARTS)
