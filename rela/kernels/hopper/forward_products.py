"""A warpgroup of the forward pass: scores, weights and the products with the values of its ROWS queries.

While the product with the values of one tile runs, that of the queries with the next tile of keys is already under
way, and the activation between the two is one instruction for two scores: a conversion to the input type that clamps at
zero. Weights never leave the registers.
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

from rela.kernels.hopper.dropout import rectified_kept
from rela.kernels.hopper.forward_loads import place, share, span
from rela.kernels.hopper.mask import load_words, not_hidden, seen_only
from rela.kernels.hopper.statistics import better, bits_of_groups, observe, rectified_counted, store_statistics
from rela.kernels.hopper.tile_operations import clear_rows, rectified


@gluon.jit
def scores(
    b_s,
    row,
    column,
    b_first,
    b_last,
    b_theta,
    b_bias,
    score_scale,
    threshold_scale,
    T,
    S,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    BIASED: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    STATISTICS: gl.constexpr,
):
    """Scores from products, zero where a key is hidden (CAUSAL, TABLED) or where there is none (STATISTICS)."""
    if SCALED:
        b_s = b_s * score_scale
    if SHIFTED:
        b_s = b_s - b_theta
    if BIASED:
        b_s += b_bias.to(gl.float32) * threshold_scale
    o_s = column + gl.arange(0, b_s.shape[1], gl.SliceLayout(0, b_s.type.layout))
    if TABLED:
        b_s = gl.where((o_s[None, :] >= b_first[:, None]) & (o_s[None, :] < b_last[:, None]), b_s, 0.0)
    elif CAUSAL:
        o_t = row + gl.arange(0, b_s.shape[0], gl.SliceLayout(1, b_s.type.layout))
        b_s = gl.where(o_s[None, :] <= (o_t + S - T)[:, None], b_s, 0.0)
    if STATISTICS:
        b_s = gl.where((o_s < S)[None, :], b_s, 0.0)
    return b_s


@gluon.jit
def product_partition(
    i_w,
    arguments,
    D: gl.constexpr,
    CAUSAL: gl.constexpr,
    LONGEST_FIRST: gl.constexpr,
    TABLED: gl.constexpr,
    ENDED: gl.constexpr,
    STARTED: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    DROPPED: gl.constexpr,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    STATISTICS: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    QUERY_STAGES: gl.constexpr,
    BIAS_STAGES: gl.constexpr,
):
    (
        out,
        rows,
        seen,
        end_k,
        numbers_q,
        drop_below,
        s_q,
        s_o,
        s_k,
        s_v,
        s_numbers,
        q_full,
        q_empty,
        k_full,
        k_empty,
        v_full,
        v_empty,
        threshold,
        score_scale,
        threshold_scale,
        output_scale,
        words,
        step_b,
        step_h,
        s_bias,
        bias_full,
        bias_empty,
        starts,
        B,
        H,
        heads,
        T,
        S,
    ) = arguments
    dtype: gl.constexpr = s_q.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    column_layout: gl.constexpr = gl.SliceLayout(0, s_layout)
    n_t = (T + 2 * ROWS - 1) // (2 * ROWS)
    b_none = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    stage = 0  # of the next tile of keys
    phase = 0
    q_stage = 0
    q_phase = 0
    bias_stage = 0
    bias_phase = 0
    n_k = (S + KEYS - 1) // KEYS
    for i_round in range(share(n_t * H * B)):
        i_t, i_h, i_b = place(i_round, n_t, B, H, heads, LONGEST_FIRST, BIASED)
        row = (i_t * 2 + i_w) * ROWS
        seen_here = seen + i_b.to(gl.int64) * 2 * T
        first, n_s = span(seen_here, i_t * 2 * ROWS, gl.minimum((i_t + 1) * 2 * ROWS, T), T, S, KEYS, CAUSAL, TABLED)
        begin = 0
        end = S
        if STARTED:
            begin = gl.load(starts + i_b).to(gl.int32)
        if ENDED:
            end = gl.load(end_k + i_b).to(gl.int32)
        if MASKED:
            i_m = i_b * step_b + i_h * step_h
            b_words = load_words(words, i_m, first, row, n_k, T, ROWS, KEYS)
        whole = n_s
        b_first = 0
        b_last = 0
        if TABLED:
            o_t = gl.minimum(row + gl.arange(0, ROWS, row_layout), T - 1)
            b_first = gl.load(seen_here + o_t)
            b_last = gl.load(seen_here + T + o_t)
            # tiles that every row sees whole, if all rows lie in one sequence; the first one is masked in any case
            whole = gl.load(seen_here + T + gl.minimum(row, T - 1)) // KEYS
            whole = gl.where(gl.load(seen_here + gl.minimum(row + ROWS, T) - 1) > (first + 1) * KEYS, 0, whole)
            whole = gl.minimum(gl.maximum(whole, first + 1), n_s)
        elif CAUSAL:
            # tiles that every row sees whole; the first one is masked in any case
            whole = gl.minimum(gl.maximum((row + 1 + S - T) // KEYS, 1), n_s)
        if STATISTICS:
            # a key of zeros beyond the last does no harm to the output, but might be counted
            whole = gl.minimum(whole, gl.maximum(S // KEYS, 1))
            own_bits = bits_of_groups(S, KEYS)
        if DROPPED:
            n_q = (T + KEYS - 1) // KEYS * KEYS
            b_number = gl.load(numbers_q + (i_b * H + i_h).to(gl.int64) * n_q + row + gl.arange(0, ROWS, row_layout))
        b_theta = 0.0
        if SHIFTED:
            b_theta = gl.load(threshold + i_h).to(gl.float32) * threshold_scale

        i_q = q_stage * 2 + i_w
        q_tile = s_q.index(i_q).reshape([ROWS, D])
        mbarrier.wait(q_full.index(i_q), q_phase)
        mbarrier.wait(k_full.index(stage), phase)
        b_s = warpgroup_mma(
            q_tile, s_k.index(stage).reshape([KEYS, D]).permute((1, 0)), b_none, use_acc=False, is_async=True
        )
        if DROPPED:
            b_numbers = s_numbers.index(stage).reshape([KEYS]).load(column_layout)
            fence_async_shared()
        b_first_bias = 0.0
        if BIASED:
            i_bias = bias_stage * 2 + i_w
            mbarrier.wait(bias_full.index(i_bias), bias_phase)
            b_first_bias = s_bias.index(i_bias).reshape([ROWS, KEYS]).load(s_layout)
            fence_async_shared()  # the numbers are in registers before the accelerator may write the next ones
            mbarrier.arrive(bias_empty.index(i_bias))
            bias_stage += 1
            if bias_stage == BIAS_STAGES:
                bias_stage = 0
                bias_phase ^= 1
        b_s = warpgroup_mma_wait(0, [b_s])
        mbarrier.arrive(k_empty.index(stage))
        b_s = scores(
            b_s,
            row,
            first * KEYS,
            b_first,
            b_last,
            b_theta,
            b_first_bias,
            score_scale,
            threshold_scale,
            T,
            S,
            SCALED,
            SHIFTED,
            BIASED,
            CAUSAL,
            TABLED,
            STATISTICS,
        )
        if STATISTICS:
            b_w, b_flags = rectified_counted(b_s, dtype)
            b_zeros, b_keys = observe(b_s, b_flags, own_bits, dtype)
            b_best, b_from = better(0, b_keys, b_keys * 0, b_keys * 0, KEYS)
        elif DROPPED:
            b_w = rectified_kept(b_s, b_number, b_numbers, drop_below, dtype)
        else:
            b_w = rectified(b_s, dtype)
        if MASKED:
            b_w = seen_only(b_w, b_words)
            b_words = load_words(words, i_m, first + 1, row, n_k, T, ROWS, KEYS)
        if BIASED:
            b_w = not_hidden(b_w, b_first_bias)
        b_w = gl.convert_layout(b_w, w_layout, assert_trivial=True)
        if STARTED:  # noqa: SIM102  one is known when compiling, the other is not
            # keys before the start are in the first tile, if anywhere
            if begin > first * KEYS:
                mbarrier.wait(v_full.index(stage), phase)
                clear_rows(s_v.index(stage).reshape([KEYS, D]), begin - first * KEYS, end - first * KEYS)
        b_out = gl.zeros([ROWS, D], gl.float32, o_layout)
        v_stage = stage
        v_phase = phase
        for RAGGED in gl.static_range(2 if CAUSAL or TABLED or STATISTICS else 1):
            start = first + 1
            stop = whole
            if RAGGED:
                start = whole
                stop = n_s
            for i_s in range(start, stop):
                stage += 1
                if stage == STAGES:
                    stage = 0
                    phase ^= 1
                mbarrier.wait(k_full.index(stage), phase)
                b_s = warpgroup_mma(
                    q_tile, s_k.index(stage).reshape([KEYS, D]).permute((1, 0)), b_none, use_acc=False, is_async=True
                )
                if DROPPED:
                    b_numbers = s_numbers.index(stage).reshape([KEYS]).load(column_layout)
                    fence_async_shared()
                mbarrier.wait(v_full.index(v_stage), v_phase)
                b_out = warpgroup_mma(b_w, s_v.index(v_stage).reshape([KEYS, D]), b_out, is_async=True)
                b_bias = 0.0
                if BIASED:
                    i_bias = bias_stage * 2 + i_w
                    mbarrier.wait(bias_full.index(i_bias), bias_phase)
                    b_bias = s_bias.index(i_bias).reshape([ROWS, KEYS]).load(s_layout)
                    fence_async_shared()
                    mbarrier.arrive(bias_empty.index(i_bias))
                    bias_stage += 1
                    if bias_stage == BIAS_STAGES:
                        bias_stage = 0
                        bias_phase ^= 1
                b_s = warpgroup_mma_wait(1, [b_s])
                mbarrier.arrive(k_empty.index(stage))
                b_s = scores(
                    b_s,
                    row,
                    i_s * KEYS,
                    b_first,
                    b_last,
                    b_theta,
                    b_bias,
                    score_scale,
                    threshold_scale,
                    T,
                    S,
                    SCALED,
                    SHIFTED,
                    BIASED,
                    RAGGED and CAUSAL,
                    RAGGED and TABLED,
                    RAGGED and STATISTICS,
                )
                if STATISTICS:
                    b_next, b_flags = rectified_counted(b_s, dtype)
                    # always true: without a branch the compiler puts this off until the product in flight has ended
                    if T > 0:
                        b_more, b_keys = observe(b_s, b_flags, own_bits, dtype)
                        b_zeros += b_more
                        b_best, b_from = better(i_s, b_keys, b_best, b_from, KEYS)
                elif DROPPED:
                    b_next = rectified_kept(b_s, b_number, b_numbers, drop_below, dtype)
                else:
                    b_next = rectified(b_s, dtype)
                if MASKED:
                    b_next = seen_only(b_next, b_words)
                    b_words = load_words(words, i_m, i_s + 1, row, n_k, T, ROWS, KEYS)
                if BIASED:
                    b_next = not_hidden(b_next, b_bias)
                b_next = gl.convert_layout(b_next, w_layout, assert_trivial=True)
                b_out, b_w = warpgroup_mma_wait(0, [b_out, b_w])
                mbarrier.arrive(v_empty.index(v_stage))
                b_w = b_next
                v_stage = stage
                v_phase = phase
        mbarrier.arrive(q_empty.index(i_q))
        q_stage += 1
        if q_stage == QUERY_STAGES:
            q_stage = 0
            q_phase ^= 1
        mbarrier.wait(v_full.index(v_stage), v_phase)
        if ENDED:  # noqa: SIM102  one is known when compiling, the other is not
            # the tile in which the last sequence, or this batch element's, ends is the last that any query sees
            if n_s * KEYS > end:
                last_tile = (n_s - 1) * KEYS
                clear_rows(s_v.index(v_stage).reshape([KEYS, D]), begin - last_tile, end - last_tile)
        b_out = warpgroup_mma(b_w, s_v.index(v_stage).reshape([KEYS, D]), b_out, is_async=True)
        b_out = warpgroup_mma_wait(0, [b_out])
        tma.store_wait(0)
        mbarrier.arrive(v_empty.index(v_stage))
        s_o.index(i_w).reshape([ROWS, D]).store((b_out * output_scale).to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [i_b, i_h, row, 0], s_o.index(i_w))
        if STATISTICS:
            o_t = row + gl.arange(0, ROWS, row_layout)
            p_row = (i_b * H + i_h).to(gl.int64) * T + o_t
            store_statistics(rows, p_row, o_t < T, b_zeros, b_best, b_from, n_s * KEYS, output_scale, row_layout, KEYS)
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
    tma.store_wait(0)
