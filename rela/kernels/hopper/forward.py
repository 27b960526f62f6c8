"""The forward pass on Hopper, in Gluon: one warp loads by the tensor memory accelerator, warpgroups multiply.

A warpgroup owns ROWS queries. While the product with the values of one tile runs, that of the queries with the next
tile of keys is already under way, and the activation between the two is one instruction for two scores: a conversion to
the input type that clamps at zero. Weights never leave the registers. Programs are persistent: the loads for the next
tile of queries begin while the last one is being stored. Row statistics, if asked for, are in statistics.py, dropout in
dropout.py, masks in mask.py; which keys queries see comes from a table (tables.py), unless all do or causality
alone decides.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from rela.kernels.attention.problem import Problem, ceil_div, heads_last, processors
from rela.kernels.attention.tiles import HopperTiles
from rela.kernels.hopper.dropout import rectified_kept
from rela.kernels.hopper.mask import load_words, not_hidden, seen_only
from rela.kernels.hopper.statistics import better, bits_of_groups, observe, rectified_counted, store_statistics
from rela.kernels.hopper.tables import addressable_bias, dropout_numbers, has_intervals, intervals, mask_words, repeats
from rela.kernels.launch import Launch, Tiles, described


def planned(
    problem: Problem, tiles: HopperTiles, statistics: bool
) -> Callable[[Problem, tuple[Tensor, ...] | None], Tensor]:
    """A function that computes this problem, and all that differ from it in their numbers alone."""
    B, H, T, _ = problem.q.shape
    programs = min(ceil_div(T, 2 * tiles.rows) * H * B, processors(problem.q.device))
    start = Launch(forward_kernel, (programs,), constants(problem, tiles, statistics), tiled(problem, tiles))
    fixed = numbers_of(problem)
    shape, kind, device = problem.q.shape, problem.q.dtype, problem.q.device
    limits = problem.key_lengths, problem.mask, problem.seed
    plain = not statistics and not has_intervals(problem) and all(limit is None for limit in limits)

    def run(problem: Problem, rows: tuple[Tensor, ...] | None) -> Tensor:
        out = heads_last(shape, kind, device)
        tables: tuple[Any, ...] = None, None, None, None
        if not plain:
            tables = intervals(problem, of_keys=False), dropout_numbers(problem), mask_words(problem, of_keys=False)
            tables = *tables, addressable_bias(problem)
        start(*tensors(problem, out, rows, *tables), *fixed)
        return out

    return run


def launch(
    problem: Problem,
    out: Tensor,
    tiles: HopperTiles,
    rows: tuple[Tensor, ...] | None = None,
    seen: Tensor | None = None,
    numbers: tuple[Tensor, Tensor] | None = None,
    words: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and compile-time constants of the kernel."""
    arguments = *tensors(problem, out, rows, seen, numbers, words, bias), *numbers_of(problem)
    return described(arguments, tiled(problem, tiles)), constants(problem, tiles, rows is not None)


def tensors(
    problem: Problem,
    out: Tensor,
    rows: tuple[Tensor, ...] | None,
    seen: Tensor | None,
    numbers: tuple[Tensor, Tensor] | None,
    words: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """The kernel's tensors; `out` stands for those that it does not look at."""
    ends = problem.key_lengths if problem.cu_k is None else problem.cu_k[-1:]
    return (
        problem.q,
        problem.k,
        problem.v,
        out,
        *(rows or (out, out, out)),
        out if seen is None else seen,
        out if ends is None else ends,
        *((out, out) if numbers is None else numbers),
        out if problem.threshold is None else problem.threshold,
        out if words is None else words,
        out if bias is None else bias,
        out if problem.key_starts is None else problem.key_starts,
    )


def numbers_of(problem: Problem) -> tuple[object, ...]:
    """The kernel's arguments after its tensors, the same for all problems of one layout."""
    (B, H, T, _), (_, Hk, S, _) = problem.q.shape, problem.k.shape
    score_scale, threshold_scale, output_scale, _ = problem.scales()
    scales = 1.0 if score_scale is None else score_scale, threshold_scale, output_scale
    steps = (0, 0) if problem.mask is None else repeats(problem)
    return problem.drop_below * 0x10001, *scales, B, H, H // Hk, T, S, *steps


def tiled(problem: Problem, tiles: HopperTiles) -> Tiles:
    """Which of the arguments are read or written in tiles."""
    dense: dict[int, tuple[int, int | None]] = {
        0: (tiles.rows, None),
        1: (tiles.keys, None),
        2: (tiles.keys, None),
        3: (tiles.rows, None),
    }
    if problem.seed is not None:
        dense |= {10: (1, tiles.keys)}
    return dense | {13: (tiles.rows, tiles.keys)} if problem.biased else dense


def constants(problem: Problem, tiles: HopperTiles, statistics: bool) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    packed, tabled = problem.queries is not None, has_intervals(problem)
    return {
        "D": problem.q.shape[3],
        "CAUSAL": problem.causal and not tabled,  # else it is in the intervals
        "LONGEST_FIRST": problem.causal and not packed,
        "TABLED": tabled,
        "ENDED": packed or problem.key_lengths is not None,
        "STARTED": problem.key_starts is not None,
        "MASKED": problem.mask is not None and not problem.biased,
        "BIASED": problem.biased,
        "DROPPED": problem.seed is not None,
        "SCALED": problem.scales()[0] is not None,
        "SHIFTED": problem.threshold is not None,
        "STATISTICS": statistics,
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
        "STAGES": tiles.stages,
        "BIAS_STAGES": 2 if problem.q.shape[3] == 64 else 1,
        "num_warps": 4,
    }


@gluon.jit
def rectified(b_s, dtype: gl.constexpr):
    """max(0, score) in the input type, two at a time; NaN stays NaN."""
    if dtype == gl.bfloat16:
        return gl.inline_asm_elementwise(
            "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,f,f", [b_s], dtype=gl.bfloat16, is_pure=True, pack=2
        )
    else:
        return gl.inline_asm_elementwise(
            "cvt.rn.relu.f16x2.f32 $0, $2, $1;", "=r,f,f", [b_s], dtype=gl.float16, is_pure=True, pack=2
        )


@gluon.jit
def share(n):
    """How many of n tiles this program computes: one of every round, alternately from the front and from the back."""
    P = gl.num_programs(0)
    i_last = gl.program_id(0)
    if (n // P) % 2 == 1:
        i_last = P - 1 - i_last
    return n // P + gl.where(i_last < n % P, 1, 0)


@gluon.jit
def place(i_round, n_t, B, H, LONGEST_FIRST: gl.constexpr, BIASED: gl.constexpr):
    """Tile of queries, head and batch element that this program computes in a round.

    Causal: the longest rows of all heads come first, then shorter ones, and the program that had the longest of one
    round has the shortest of the next. Otherwise all tiles of a head follow each other and share its keys in the cache.
    BIASED: so do batch elements, which often share the bias of a head.
    """
    P = gl.num_programs(0)
    i = gl.program_id(0)
    if i_round % 2 == 1:
        i = P - 1 - i
    i += i_round * P
    if LONGEST_FIRST:
        i_t = n_t - 1 - i // (B * H)
        i_bh = i % (B * H)
    else:
        i_t = i % n_t
        i_bh = i // n_t
    i_h = i_bh % H
    i_b = i_bh // H
    if BIASED:
        i_h = i_bh // B
        i_b = i_bh % B
    return i_t, i_h, i_b


@gluon.jit
def span(seen, row, end, T, S, KEYS: gl.constexpr, CAUSAL: gl.constexpr, TABLED: gl.constexpr):
    """First tile of keys, and one past the last, that the queries row … end − 1 see; at least one, for the loads."""
    first = 0
    last = S
    if TABLED:
        first = gl.load(seen + row) // KEYS
        last = gl.load(seen + T + end - 1)
    elif CAUSAL:
        last = gl.minimum(S, end + S - T)
    return first, gl.maximum((last + KEYS - 1) // KEYS, first + 1)


@gluon.jit
def load_partition(
    arguments,
    CAUSAL: gl.constexpr,
    LONGEST_FIRST: gl.constexpr,
    TABLED: gl.constexpr,
    DROPPED: gl.constexpr,
    BIASED: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    BIAS_STAGES: gl.constexpr,
):
    (
        q,
        k,
        v,
        seen,
        numbers_k,
        s_q,
        s_k,
        s_v,
        s_numbers,
        q_full,
        q_empty,
        k_full,
        k_empty,
        v_full,
        v_empty,
        bias,
        s_bias,
        bias_full,
        bias_empty,
        step_b,
        step_h,
        B,
        H,
        group,
        T,
        S,
    ) = arguments
    n_t = (T + 2 * ROWS - 1) // (2 * ROWS)
    stage = 0
    phase = 1  # the stages are empty at first
    q_phase = 1
    bias_stage = 0
    bias_phase = 1
    for i_round in range(share(n_t * H * B)):
        i_t, i_h, i_b = place(i_round, n_t, B, H, LONGEST_FIRST, BIASED)
        row = i_t * 2 * ROWS
        seen_here = seen + i_b.to(gl.int64) * 2 * T
        first, last = span(seen_here, row, gl.minimum(row + 2 * ROWS, T), T, S, KEYS, CAUSAL, TABLED)
        for i_w in gl.static_range(2):
            mbarrier.wait(q_empty.index(i_w), q_phase)
            mbarrier.expect(q_full.index(i_w), q.block_type.nbytes)
            tma.async_copy_global_to_shared(q, [i_b, i_h, row + i_w * ROWS, 0], q_full.index(i_w), s_q.index(i_w))
        q_phase ^= 1
        for i_s in range(first, last):
            mbarrier.wait(k_empty.index(stage), phase)
            if DROPPED:
                mbarrier.expect(k_full.index(stage), k.block_type.nbytes + numbers_k.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    numbers_k, [i_b, i_h, 0, i_s * KEYS], k_full.index(stage), s_numbers.index(stage)
                )
            else:
                mbarrier.expect(k_full.index(stage), k.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k, [i_b, i_h // group, i_s * KEYS, 0], k_full.index(stage), s_k.index(stage)
            )
            if BIASED:
                for i_w in gl.static_range(2):
                    i_bias = bias_stage * 2 + i_w
                    mbarrier.wait(bias_empty.index(i_bias), bias_phase)
                    mbarrier.expect(bias_full.index(i_bias), bias.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        bias,
                        [i_b * step_b, i_h * step_h, row + i_w * ROWS, i_s * KEYS],
                        bias_full.index(i_bias),
                        s_bias.index(i_bias),
                    )
                bias_stage += 1
                if bias_stage == BIAS_STAGES:
                    bias_stage = 0
                    bias_phase ^= 1
            mbarrier.wait(v_empty.index(stage), phase)
            mbarrier.expect(v_full.index(stage), v.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v, [i_b, i_h // group, i_s * KEYS, 0], v_full.index(stage), s_v.index(stage)
            )
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


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
def clear_rows(tile, first, last):
    """Write zeros to all rows of a tile but first … last − 1: others may hold NaN, and zero times NaN is NaN.

    Each warpgroup clears what it is about to read, and does not mind that the other one does so too: whoever writes a
    row that nobody sees writes zeros.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    PIECE: gl.constexpr = 32
    o_row = gl.arange(0, PIECE, gl.SliceLayout(1, layout))
    for i in gl.static_range(tile.shape[0] // PIECE):
        piece = tile.slice(i * PIECE, PIECE)
        m_seen = (i * PIECE + o_row >= first) & (i * PIECE + o_row < last)
        piece.store(gl.where(m_seen[:, None], piece.load(layout), 0.0))
    fence_async_shared()


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
    q_tile = s_q.index(i_w).reshape([ROWS, D])
    stage = 0  # of the next tile of keys
    phase = 0
    q_phase = 0
    bias_stage = 0
    bias_phase = 0
    n_k = (S + KEYS - 1) // KEYS
    for i_round in range(share(n_t * H * B)):
        i_t, i_h, i_b = place(i_round, n_t, B, H, LONGEST_FIRST, BIASED)
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

        mbarrier.wait(q_full.index(i_w), q_phase)
        mbarrier.wait(k_full.index(stage), phase)
        b_s = warpgroup_mma(
            q_tile, s_k.index(stage).reshape([KEYS, D]).permute((1, 0)), b_none, use_acc=False, is_async=True
        )
        if DROPPED:
            b_numbers = s_numbers.index(stage).reshape([KEYS]).load(column_layout)
        b_first_bias = 0.0
        if BIASED:
            i_bias = bias_stage * 2 + i_w
            mbarrier.wait(bias_full.index(i_bias), bias_phase)
            b_first_bias = s_bias.index(i_bias).reshape([ROWS, KEYS]).load(s_layout)
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
                mbarrier.wait(v_full.index(v_stage), v_phase)
                b_out = warpgroup_mma(b_w, s_v.index(v_stage).reshape([KEYS, D]), b_out, is_async=True)
                b_bias = 0.0
                if BIASED:
                    i_bias = bias_stage * 2 + i_w
                    mbarrier.wait(bias_full.index(i_bias), bias_phase)
                    b_bias = s_bias.index(i_bias).reshape([ROWS, KEYS]).load(s_layout)
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
                    # always so; a branch, lest the compiler put this off until the product in flight has ended
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
        mbarrier.arrive(q_empty.index(i_w))
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


@gluon.jit(do_not_specialize=["drop_below", "B", "H", "group", "T", "S", "step_b", "step_h"])
def forward_kernel(
    q,
    k,
    v,
    out,
    nonzeros,
    argmax,
    largest,
    seen,
    end_k,
    numbers_q,
    numbers_k,
    threshold,
    words,
    bias,
    starts,
    drop_below,
    score_scale,
    threshold_scale,
    output_scale,
    B,
    H,
    group,
    T,
    S,
    step_b,
    step_h,
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
    BIAS_STAGES: gl.constexpr,
):
    dtype: gl.constexpr = q.dtype
    s_q = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], q.layout)
    s_o = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], out.layout)
    s_k = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, D], k.layout)
    s_v = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, D], v.layout)
    s_numbers = s_q
    if DROPPED:
        s_numbers = gl.allocate_shared_memory(gl.int32, [STAGES, 1, 1, 1, KEYS], numbers_k.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    s_bias = s_q
    bias_full = q_full
    bias_empty = q_full
    if BIASED:
        s_bias = gl.allocate_shared_memory(bias.dtype, [2 * BIAS_STAGES, 1, 1, ROWS, KEYS], bias.layout)
        bias_full = gl.allocate_shared_memory(gl.int64, [2 * BIAS_STAGES, 1], mbarrier.MBarrierLayout())
        bias_empty = gl.allocate_shared_memory(gl.int64, [2 * BIAS_STAGES, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(2 * BIAS_STAGES):
            mbarrier.init(bias_full.index(i), count=1)
            mbarrier.init(bias_empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=2)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=2)
    fence_async_shared()

    loads = (
        q,
        k,
        v,
        seen,
        numbers_k,
        s_q,
        s_k,
        s_v,
        s_numbers,
        q_full,
        q_empty,
        k_full,
        k_empty,
        v_full,
        v_empty,
        bias,
        s_bias,
        bias_full,
        bias_empty,
        step_b,
        step_h,
        B,
        H,
        group,
        T,
        S,
    )
    rows = (nonzeros, argmax, largest)
    products = (
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
        T,
        S,
    )
    gl.warp_specialize(
        [
            (
                product_partition,
                (
                    0,
                    products,
                    D,
                    CAUSAL,
                    LONGEST_FIRST,
                    TABLED,
                    ENDED,
                    STARTED,
                    MASKED,
                    BIASED,
                    DROPPED,
                    SCALED,
                    SHIFTED,
                    STATISTICS,
                    ROWS,
                    KEYS,
                    STAGES,
                    BIAS_STAGES,
                ),
            ),
            (
                product_partition,
                (
                    1,
                    products,
                    D,
                    CAUSAL,
                    LONGEST_FIRST,
                    TABLED,
                    ENDED,
                    STARTED,
                    MASKED,
                    BIASED,
                    DROPPED,
                    SCALED,
                    SHIFTED,
                    STATISTICS,
                    ROWS,
                    KEYS,
                    STAGES,
                    BIAS_STAGES,
                ),
            ),
            (load_partition, (loads, CAUSAL, LONGEST_FIRST, TABLED, DROPPED, BIASED, ROWS, KEYS, STAGES, BIAS_STAGES)),
        ],
        [4, 1],
        [240, 24],
    )
