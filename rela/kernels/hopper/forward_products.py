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
from rela.kernels.hopper.forward_loads import later, place, share, span
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
def query_products(
    s_q,
    i_q,
    s_k,
    k_full,
    stage,
    phase,
    b_none,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Products of the queries with a tile of keys, [ROWS, KEYS], in flight."""
    b_s = b_none
    for i_p in gl.static_range(PARTS):
        at, at_phase = later(stage, phase, i_p, STAGES)
        mbarrier.wait(k_full.index(at), at_phase)
        q_part = s_q.index(i_q * PARTS + i_p).reshape([ROWS, D])
        k_part = s_k.index(at).reshape([KEYS, D])
        b_s = warpgroup_mma(q_part, k_part.permute((1, 0)), b_s, use_acc=i_p > 0, is_async=True)
    return b_s


@gluon.jit
def ended_products(b_s, k_empty, stage, phase, IN_FLIGHT: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr):
    """The products of `query_products` when all but IN_FLIGHT later ones have ended; keys may be overwritten."""
    for i_p in gl.static_range(PARTS):
        at, _ = later(stage, phase, i_p, STAGES)
        b_s = warpgroup_mma_wait(PARTS - 1 - i_p + IN_FLIGHT, [b_s])
        mbarrier.arrive(k_empty.index(at))
    return b_s


@gluon.jit
def value_products(
    b_w,
    s_v,
    v_full,
    stage,
    phase,
    b_out,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The parts of the context, each [ROWS, D], one tile of values further, in flight."""
    b_more = ()
    for i_p in gl.static_range(PARTS):
        at, at_phase = later(stage, phase, i_p, STAGES)
        mbarrier.wait(v_full.index(at), at_phase)
        v_part = s_v.index(at).reshape([KEYS, D])
        b_more += (warpgroup_mma(b_w, v_part, b_out[i_p], is_async=True),)  # type: ignore[assignment]
    return b_more


@gluon.jit
def ended_values(b_out, b_w, v_empty, stage, phase, PARTS: gl.constexpr, STAGES: gl.constexpr):
    """The products of `value_products` when they have ended; values may be overwritten."""
    b_ended = ()
    for i_p in gl.static_range(PARTS):
        at, _ = later(stage, phase, i_p, STAGES)
        b_part, b_w = warpgroup_mma_wait(PARTS - 1 - i_p, [b_out[i_p], b_w])
        b_ended += (b_part,)  # type: ignore[assignment]
        mbarrier.arrive(v_empty.index(at))
    return b_ended


@gluon.jit
def clear_values(
    s_v,
    v_full,
    stage,
    phase,
    first,
    last,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write zeros to all rows of a tile of values but first … last − 1."""
    for i_p in gl.static_range(PARTS):
        at, at_phase = later(stage, phase, i_p, STAGES)
        mbarrier.wait(v_full.index(at), at_phase)
        clear_rows(s_v.index(at).reshape([KEYS, D]), first, last)


@gluon.jit
def product_partition(
    i_w,
    arguments,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    AHEAD: gl.constexpr,
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
        mbarrier.wait(q_full.index(i_q), q_phase)
        b_s = query_products(s_q, i_q, s_k, k_full, stage, phase, b_none, D, PARTS, ROWS, KEYS, STAGES)
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
        b_s = ended_products(b_s, k_empty, stage, phase, 0, PARTS, STAGES)
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
                clear_values(
                    s_v, v_full, stage, phase, begin - first * KEYS, end - first * KEYS, D, PARTS, KEYS, STAGES
                )
        b_out = ()
        for _ in gl.static_range(PARTS):
            b_out += (gl.zeros([ROWS, D], gl.float32, o_layout),)  # type: ignore[assignment]
        v_stage = stage
        v_phase = phase
        for RAGGED in gl.static_range(2 if CAUSAL or TABLED or STATISTICS else 1):
            start = first + 1
            stop = whole
            if RAGGED:
                start = whole
                stop = n_s
            for i_s in range(start, stop):
                stage, phase = later(stage, phase, PARTS, STAGES)
                if not AHEAD:
                    b_out = value_products(b_w, s_v, v_full, v_stage, v_phase, b_out, D, PARTS, KEYS, STAGES)
                    b_out = ended_values(b_out, b_w, v_empty, v_stage, v_phase, PARTS, STAGES)
                b_s = query_products(s_q, i_q, s_k, k_full, stage, phase, b_none, D, PARTS, ROWS, KEYS, STAGES)
                if DROPPED:
                    b_numbers = s_numbers.index(stage).reshape([KEYS]).load(column_layout)
                    fence_async_shared()
                if AHEAD:
                    b_out = value_products(b_w, s_v, v_full, v_stage, v_phase, b_out, D, PARTS, KEYS, STAGES)
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
                b_s = ended_products(b_s, k_empty, stage, phase, PARTS if AHEAD else 0, PARTS, STAGES)
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
                if AHEAD:
                    b_out = ended_values(b_out, b_w, v_empty, v_stage, v_phase, PARTS, STAGES)
                b_w = b_next
                v_stage = stage
                v_phase = phase
        mbarrier.arrive(q_empty.index(i_q))
        q_stage += 1
        if q_stage == QUERY_STAGES:
            q_stage = 0
            q_phase ^= 1
        if ENDED:  # noqa: SIM102  one is known when compiling, the other is not
            # the tile in which the last sequence, or this batch element's, ends is the last that any query sees
            if n_s * KEYS > end:
                last_tile = (n_s - 1) * KEYS
                clear_values(s_v, v_full, v_stage, v_phase, begin - last_tile, end - last_tile, D, PARTS, KEYS, STAGES)
        b_out = value_products(b_w, s_v, v_full, v_stage, v_phase, b_out, D, PARTS, KEYS, STAGES)
        b_out = ended_values(b_out, b_w, v_empty, v_stage, v_phase, PARTS, STAGES)
        for i_p in gl.static_range(PARTS):
            tma.store_wait(0)
            s_o.index(i_w).reshape([ROWS, D]).store((b_out[i_p] * output_scale).to(dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [i_b, i_h, row, i_p * D], s_o.index(i_w))
        if STATISTICS:
            o_t = row + gl.arange(0, ROWS, row_layout)
            p_row = (i_b * H + i_h).to(gl.int64) * T + o_t
            store_statistics(rows, p_row, o_t < T, b_zeros, b_best, b_from, n_s * KEYS, output_scale, row_layout, KEYS)
        stage, phase = later(stage, phase, PARTS, STAGES)
    tma.store_wait(0)
