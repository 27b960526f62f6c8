"""The backward pass on Hopper in one pass over the scores, in Gluon: five products, dQ added up in global memory.

A program owns KEYS keys, ROWS of them for each of two warpgroups, and walks over the queries that see them:

    Sᵀ = k qᵀ      dPᵀ = v dOᵀ      dV += wᵀ dO      dK += dSᵀ q      dQ += dS k

The first two products leave keys as rows, so that wᵀ and dSᵀ are in the registers where the third and the fourth want
them. Only dS goes through shared memory: each warpgroup computes one half of the tile of dQ over all keys of the
program and adds it to a float32 buffer through the tensor memory accelerator. The order of these additions is not
fixed.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from rela.kernels.attention.problem import Problem, ceil_div, heads_last
from rela.kernels.attention.tiles import HopperGradientTiles
from rela.kernels.hopper.dropout import rectified_kept
from rela.kernels.hopper.forward import clear_rows, rectified
from rela.kernels.hopper.mask import load_words, not_hidden, seen_only
from rela.kernels.hopper.tables import addressable_bias, dropout_numbers, has_intervals, intervals, mask_words, repeats
from rela.kernels.launch import Launch, Tiles, described


@builtin
def async_add_shared_to_global(tensor_desc, coord, src, _semantic=None):
    """Add a tile to global memory; tma.store_wait waits for it too."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, coord, src.handle)


ROWS = 64  # keys of a warpgroup, and both sides of its share of a tile of dQ


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""dQ, dK, dV and, where there is a θ, the partial sums of −dθ, [B, H, parts]."""


def planned(problem: Problem, tiles: HopperGradientTiles) -> Callable[[Problem, Tensor], Gradients]:
    """A function for the gradients of this problem, and of all that differ from it in their numbers alone."""
    (B, H, T, D), (_, Hk, S, _) = problem.q.shape, problem.k.shape
    keys, kind, device = problem.k.shape, problem.q.dtype, problem.q.device
    n_s = ceil_div(S, 2 * ROWS)
    parts = 0 if problem.threshold is None else 2 * n_s
    start = Launch(backward_kernel, (n_s * Hk * B,), constants(problem, tiles), tiled(problem, tiles))
    fixed = numbers_of(problem)

    def run(problem: Problem, d_out: Tensor) -> Gradients:
        dq = torch.zeros((B, T, H, D), dtype=torch.float32, device=device).transpose(1, 2)
        dk, dv = heads_last(keys, kind, device), heads_last(keys, kind, device)
        d_theta = torch.empty(B, H, parts, dtype=torch.float32, device=device) if parts else None
        tables = intervals(problem, of_keys=True), dropout_numbers(problem), mask_words(problem, of_keys=True)
        given = d_out, dq, dk, dv, dq if d_theta is None else d_theta, *tables, addressable_bias(problem)
        start(*tensors(problem, *given), *fixed)
        return dq.to(kind), dk, dv, d_theta

    return run


def launch(
    problem: Problem,
    d_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    d_theta: Tensor,
    tiles: HopperGradientTiles,
    seen: Tensor | None = None,
    numbers: tuple[Tensor, Tensor] | None = None,
    words: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and compile-time constants of the kernel."""
    arguments = *tensors(problem, d_out, dq, dk, dv, d_theta, seen, numbers, words, bias), *numbers_of(problem)
    return described(arguments, tiled(problem, tiles)), constants(problem, tiles)


def tensors(
    problem: Problem,
    d_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    d_theta: Tensor,
    seen: Tensor | None,
    numbers: tuple[Tensor, Tensor] | None,
    words: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """The kernel's tensors; `dq` stands for those that it does not look at."""
    ends = problem.key_lengths if problem.cu_k is None else problem.cu_k[-1:]
    return (
        problem.q,
        problem.k,
        problem.v,
        d_out,
        dq,
        dk,
        dv,
        dq if seen is None else seen,
        dq if problem.cu_q is None else problem.cu_q[-1:],
        dq if ends is None else ends,
        *((dq, dq) if numbers is None else numbers),
        dq if problem.threshold is None else problem.threshold,
        d_theta,
        dq if words is None else words,
        dq if bias is None else bias,
        dq if problem.key_starts is None else problem.key_starts,
    )


def numbers_of(problem: Problem) -> tuple[object, ...]:
    """The kernel's arguments after its tensors, the same for all problems of one layout."""
    score_scale, threshold_scale, output_scale, gradient_scale = problem.scales()
    scales = threshold_scale, 1.0 if score_scale is None else score_scale, output_scale, gradient_scale
    steps = (0, 0) if problem.mask is None else repeats(problem)
    return problem.drop_below * 0x10001, *scales, *problem.q.shape[1:3], problem.k.shape[2], *steps


def tiled(problem: Problem, tiles: HopperGradientTiles) -> Tiles:
    """Which of the arguments are read or written in tiles."""
    dense: dict[int, tuple[int, int | None]] = dict.fromkeys((1, 2, 5, 6), (ROWS, None))
    dense |= {0: (tiles.queries, None), 3: (tiles.queries, None), 4: (ROWS, ROWS)}
    if problem.seed is not None:
        dense |= {10: (1, tiles.queries)}
    return dense | {15: (tiles.queries, ROWS)} if problem.biased else dense


def constants(problem: Problem, tiles: HopperGradientTiles) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    packed, tabled = problem.queries is not None, has_intervals(problem)
    return {
        "D": problem.q.shape[3],
        "GROUP": problem.q.shape[1] // problem.k.shape[1],
        "CAUSAL": problem.causal and not tabled,  # else it is in the intervals
        "TABLED": tabled,
        "PACKED": packed,
        "ENDED": packed or problem.key_lengths is not None,
        "STARTED": problem.key_starts is not None,
        "MASKED": problem.mask is not None and not problem.biased,
        "BIASED": problem.biased,
        "DROPPED": problem.seed is not None,
        "SCALED": problem.scales()[0] is not None,
        "SHIFTED": problem.threshold is not None,
        "QUERIES": tiles.queries,
        "STAGES": tiles.stages,
        "PREFETCH": tiles.prefetch,
        "num_warps": 4,
    }


@gluon.jit
def rectified_gradient(b_dp, b_w):
    """dP where the weight is positive, zero elsewhere, in the input type, two at a time; NaN counts as positive."""
    if b_w.dtype == gl.bfloat16:
        return gl.inline_asm_elementwise(
            "{.reg .b32 d, m, z; mov.b32 z, 0; cvt.rn.bf16x2.f32 d, $2, $1; "
            "set.neu.u32.bf16x2 m, $3, z; and.b32 $0, d, m;}",
            "=r,f,f,r",
            [b_dp, b_w],
            dtype=gl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        return gl.inline_asm_elementwise(
            "{.reg .b32 d, m, z; mov.b32 z, 0; cvt.rn.f16x2.f32 d, $2, $1; "
            "set.neu.u32.f16x2 m, $3, z; and.b32 $0, d, m;}",
            "=r,f,f,r",
            [b_dp, b_w],
            dtype=gl.float16,
            is_pure=True,
            pack=2,
        )


@gluon.jit
def span(seen, i_s, T, S, ROWS: gl.constexpr, QUERIES: gl.constexpr, CAUSAL: gl.constexpr, TABLED: gl.constexpr):
    """First tile of queries, and one past the last, in which any query sees a key of this program."""
    first = 0
    last = T
    if TABLED:
        first = gl.load(seen + i_s) // QUERIES
        last = gl.load(seen + S + gl.minimum(i_s + 2 * ROWS, S) - 1)
    elif CAUSAL:
        first = gl.maximum(i_s + T - S, 0) // QUERIES
    return first, (last + QUERIES - 1) // QUERIES


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
    for i_w in gl.static_range(2):
        mbarrier.expect(k_full.index(i_w), k.block_type.nbytes)
        tma.async_copy_global_to_shared(k, [i_b, i_hk, i_s + i_w * ROWS, 0], k_full.index(i_w), s_k.index(i_w))
    for i_w in gl.static_range(2):
        mbarrier.expect(v_full.index(i_w), v.block_type.nbytes)
        tma.async_copy_global_to_shared(v, [i_b, i_hk, i_s + i_w * ROWS, 0], v_full.index(i_w), s_v.index(i_w))
    stage = 0
    phase = 1
    bias_phase = 1
    first, last = span(seen, i_s, T, S, ROWS, QUERIES, CAUSAL, TABLED)
    for i_g in range(GROUP):
        for i_t in range(first, last):
            mbarrier.wait(q_empty.index(stage), phase)
            if DROPPED:
                mbarrier.expect(q_full.index(stage), q.block_type.nbytes + numbers_q.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    numbers_q, [i_b, i_hk * GROUP + i_g, 0, i_t * QUERIES], q_full.index(stage), s_numbers.index(stage)
                )
            else:
                mbarrier.expect(q_full.index(stage), q.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q, [i_b, i_hk * GROUP + i_g, i_t * QUERIES, 0], q_full.index(stage), s_q.index(stage)
            )
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
            mbarrier.expect(do_full.index(stage), d_out.block_type.nbytes)
            tma.async_copy_global_to_shared(
                d_out, [i_b, i_hk * GROUP + i_g, i_t * QUERIES, 0], do_full.index(stage), s_do.index(stage)
            )
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
    if PREFETCH:
        # the products run one tile ahead: a tile of zeros follows the last
        mbarrier.wait(q_empty.index(stage), phase)
        mbarrier.expect(q_full.index(stage), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [i_b, i_hk * GROUP, T, 0], q_full.index(stage), s_q.index(stage))


@gluon.jit
def product_partition(
    arguments,
    I_W: gl.constexpr,
    D: gl.constexpr,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    PACKED: gl.constexpr,
    ENDED: gl.constexpr,
    STARTED: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    DROPPED: gl.constexpr,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    STAGES: gl.constexpr,
    PREFETCH: gl.constexpr,
):
    (
        dq,
        dk,
        dv,
        seen,
        end_q,
        end_k,
        numbers_k,
        drop_below,
        s_q,
        s_k,
        s_v,
        s_do,
        s_ds,
        s_dq,
        s_numbers,
        k_full,
        v_full,
        q_full,
        q_empty,
        do_full,
        do_empty,
        ds_full,
        done,
        threshold,
        d_theta,
        threshold_scale,
        score_scale,
        output_scale,
        gradient_scale,
        words,
        step_b,
        step_h,
        s_bias,
        bias_full,
        bias_empty,
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
    k_tile = s_k.index(I_W).reshape([ROWS, D])
    v_tile = s_v.index(I_W).reshape([ROWS, D])
    b_none = gl.zeros([ROWS, QUERIES], gl.float32, s_layout)
    b_nothing = gl.zeros([64, 64], gl.float32, q_layout)
    b_dk = gl.zeros([ROWS, D], gl.float32, d_layout)
    b_dv = gl.zeros([ROWS, D], gl.float32, d_layout)
    o_s = i_s + I_W * ROWS + gl.arange(0, ROWS, row_layout)
    o_row = o_s + T - S
    o_col = gl.arange(0, QUERIES, column_layout)
    stage = 0
    phase = 0
    buffer = 0
    ds_phase = 0
    bias_phase = 0
    first, n_t = span(seen, i_s, T, S, ROWS, QUERIES, CAUSAL, TABLED)
    whole = first
    whole_end = n_t
    total = 0
    if PACKED:
        total = gl.load(end_q)
    if TABLED:
        b_first = gl.load(seen + gl.minimum(o_s, S - 1))
        b_last = gl.load(seen + S + gl.minimum(o_s, S - 1))
        # tiles of queries that see every key of the warpgroup
        whole = (gl.load(seen + gl.minimum(i_s + (I_W + 1) * ROWS, S) - 1) + QUERIES - 1) // QUERIES
        whole = gl.minimum(gl.maximum(whole, first), n_t)
        whole_end = gl.load(seen + S + gl.minimum(i_s + I_W * ROWS, S - 1)) // QUERIES
        whole_end = gl.minimum(gl.maximum(whole_end, whole), n_t)
    elif CAUSAL:
        # tiles of queries from here on see every key of the warpgroup
        whole = gl.minimum(gl.maximum(i_s + (I_W + 1) * ROWS - 1 + T - S + QUERIES - 1, 0) // QUERIES, n_t)
        whole = gl.maximum(whole, first)
    mbarrier.wait(k_full.index(I_W), 0)
    mbarrier.wait(k_full.index(1 - I_W), 0)
    mbarrier.wait(v_full.index(I_W), 0)
    if ENDED or STARTED:
        begin = -i_s
        end = S - i_s
        if STARTED:
            begin += gl.load(starts + i_b).to(gl.int32)
        if ENDED:
            end = gl.load(end_k + i_b).to(gl.int32) - i_s
        if (begin > 0) | (end < 2 * ROWS):
            for i_w in gl.static_range(2):
                clear_rows(s_k.index(i_w).reshape([ROWS, D]), begin - i_w * ROWS, end - i_w * ROWS)
    TILES: gl.constexpr = 128 // QUERIES  # in the columns of one group of words
    n_words = (T + 127) // 128
    PENDING: gl.constexpr = 1 if PREFETCH else 0
    if PREFETCH:
        mbarrier.wait(q_full.index(0), 0)
        q_tile = s_q.index(0).reshape([QUERIES, D])
        b_next = warpgroup_mma(k_tile, q_tile.permute((1, 0)), b_none, use_acc=False)
    for i_g in range(GROUP):
        if SHIFTED:
            b_theta = gl.load(threshold + i_hk * GROUP + i_g).to(gl.float32) * threshold_scale
            b_dtheta = gl.zeros([ROWS], gl.float32, row_layout)
        if DROPPED:
            n_k = (S + 2 * ROWS - 1) // (2 * ROWS) * 2 * ROWS
            b_number = gl.load(numbers_k + (i_b * H + i_hk * GROUP + i_g).to(gl.int64) * n_k + o_s)
        if MASKED:
            i_m = i_b * step_b + (i_hk * GROUP + i_g) * step_h
            b_words = load_words(words, i_m, first // TILES, i_s + I_W * ROWS, n_words, S, ROWS, QUERIES)
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
                    q_tile = s_q.index(stage).reshape([QUERIES, D])
                    do_tile = s_do.index(stage).reshape([QUERIES, D])
                    if PACKED and PART != 1:  # noqa: SIM102  one is known when compiling, the other is not
                        if (i_t + 1) * QUERIES > total:
                            mbarrier.wait(q_full.index(stage), phase)
                            clear_rows(q_tile, 0, total - i_t * QUERIES)
                            mbarrier.wait(do_full.index(stage), phase)
                            clear_rows(do_tile, 0, total - i_t * QUERIES)
                    if PREFETCH:
                        b_s = b_next
                    else:
                        mbarrier.wait(q_full.index(stage), phase)
                        b_s = warpgroup_mma(k_tile, q_tile.permute((1, 0)), b_none, use_acc=False, is_async=True)
                    mbarrier.wait(do_full.index(stage), phase)
                    b_dp = warpgroup_mma(v_tile, do_tile.permute((1, 0)), b_none, use_acc=False, is_async=True)
                    if not PREFETCH:
                        b_s = warpgroup_mma_wait(1, [b_s])
                    if SCALED:
                        b_s = b_s * score_scale
                    if SHIFTED:
                        b_s = b_s - b_theta
                    if BIASED:
                        mbarrier.wait(bias_full.index(I_W), bias_phase)
                        b_bias = s_bias.index(I_W).reshape([QUERIES, ROWS]).permute((1, 0)).load(s_layout)
                        mbarrier.arrive(bias_empty.index(I_W))
                        bias_phase ^= 1
                        b_s += b_bias.to(gl.float32) * threshold_scale
                    o_t = i_t * QUERIES + o_col
                    if TABLED and PART != 1:
                        b_s = gl.where((o_t[None, :] >= b_first[:, None]) & (o_t[None, :] < b_last[:, None]), b_s, 0.0)
                    elif PART != 1:
                        b_s = gl.where(o_t[None, :] >= o_row[:, None], b_s, 0.0)
                    if DROPPED:
                        b_numbers = s_numbers.index(stage).reshape([QUERIES]).load(column_layout)
                        b_w = rectified_kept(b_s, b_number, b_numbers, drop_below, dtype)
                    else:
                        b_w = rectified(b_s, dtype)
                    if MASKED:
                        if TILES == 2:
                            b_words = b_words >> (i_t % 2 * 8)
                        b_w = seen_only(b_w, b_words)
                        b_words = load_words(
                            words, i_m, (i_t + 1) // TILES, i_s + I_W * ROWS, n_words, S, ROWS, QUERIES
                        )
                    if BIASED:
                        b_w = not_hidden(b_w, b_bias)
                    b_left = gl.convert_layout(b_w, w_layout, assert_trivial=True)
                    b_dv = warpgroup_mma(b_left, do_tile, b_dv, is_async=True)
                    b_dp = warpgroup_mma_wait(1, [b_dp])
                    b_ds = rectified_gradient(b_dp, b_w)
                    s_ds.index(buffer * 2 + I_W).store(b_ds)
                    fence_async_shared()
                    mbarrier.arrive(ds_full.index(buffer))
                    if SHIFTED:
                        b_dtheta += gl.sum(gl.where(b_w != 0.0, b_dp, 0.0), axis=1)
                    b_right = gl.convert_layout(b_ds, w_layout, assert_trivial=True)
                    b_dk = warpgroup_mma(b_right, q_tile, b_dk, is_async=True)
                    mbarrier.wait(ds_full.index(buffer), ds_phase)
                    # [64, 64]: this warpgroup's columns of dQ if D = 128, its rows if D = 64
                    b_dq = b_nothing
                    for i_w in gl.static_range(2):
                        ds_tile = s_ds.index(buffer * 2 + i_w)
                        k_part = s_k.index(i_w).reshape([ROWS, D])
                        if D == 128:
                            k_part = k_part.slice(I_W * 64, 64, 1)
                        else:
                            ds_tile = ds_tile.slice(I_W * 64, 64, 1)
                        b_dq = warpgroup_mma(ds_tile.permute((1, 0)), k_part, b_dq, use_acc=i_w == 1, is_async=True)
                    next_stage = stage + 1
                    next_phase = phase
                    if next_stage == STAGES:
                        next_stage = 0
                        next_phase = phase ^ 1
                    b_dv, b_left = warpgroup_mma_wait(3, [b_dv, b_left])
                    mbarrier.arrive(do_empty.index(stage))
                    b_dk, b_right = warpgroup_mma_wait(2, [b_dk, b_right])
                    mbarrier.arrive(q_empty.index(stage))
                    if PREFETCH:
                        mbarrier.wait(q_full.index(next_stage), next_phase)
                        q_next = s_q.index(next_stage).reshape([QUERIES, D])
                        b_next = warpgroup_mma(k_tile, q_next.permute((1, 0)), b_none, use_acc=False, is_async=True)
                    tma.store_wait(0)
                    b_dq = warpgroup_mma_wait(PENDING, [b_dq])
                    s_dq.index(I_W).reshape([64, 64]).store(b_dq * gradient_scale)
                    fence_async_shared()
                    if D == 128:
                        async_add_shared_to_global(
                            dq, [i_b, i_hk * GROUP + i_g, i_t * QUERIES, I_W * 64], s_dq.index(I_W)
                        )
                    else:
                        async_add_shared_to_global(
                            dq, [i_b, i_hk * GROUP + i_g, i_t * QUERIES + I_W * 64, 0], s_dq.index(I_W)
                        )
                    if PREFETCH:
                        b_next = warpgroup_mma_wait(0, [b_next])
                    buffer ^= 1
                    if buffer == 0:
                        ds_phase ^= 1
                    stage = next_stage
                    phase = next_phase
        if SHIFTED:
            n_s = (S + 2 * ROWS - 1) // (2 * ROWS)
            i_part = ((i_b * H + i_hk * GROUP + i_g) * n_s * 2 + i_s // ROWS + I_W).to(gl.int64)
            gl.store(d_theta + i_part, gl.sum(b_dtheta, axis=0))
    # the other warpgroup has finished with the keys
    mbarrier.arrive(done)
    s_v.index(I_W).reshape([ROWS, D]).store((b_dv * output_scale).to(dtype))
    mbarrier.wait(done, 0)
    s_k.index(I_W).reshape([ROWS, D]).store((b_dk * gradient_scale).to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(dv, [i_b, i_hk, i_s + I_W * ROWS, 0], s_v.index(I_W))
    tma.async_copy_shared_to_global(dk, [i_b, i_hk, i_s + I_W * ROWS, 0], s_k.index(I_W))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["drop_below", "H", "T", "S", "step_b", "step_h"])
def backward_kernel(
    q,
    k,
    v,
    d_out,
    dq,
    dk,
    dv,
    seen,
    end_q,
    end_k,
    numbers_q,
    numbers_k,
    threshold,
    d_theta,
    words,
    bias,
    starts,
    drop_below,
    threshold_scale,
    score_scale,
    output_scale,
    gradient_scale,
    H,
    T,
    S,
    step_b,
    step_h,
    D: gl.constexpr,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
    PACKED: gl.constexpr,
    ENDED: gl.constexpr,
    STARTED: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    DROPPED: gl.constexpr,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    QUERIES: gl.constexpr,
    STAGES: gl.constexpr,
    PREFETCH: gl.constexpr,
):
    ROWS: gl.constexpr = 64
    dtype: gl.constexpr = q.dtype
    n_s = (S + 2 * ROWS - 1) // (2 * ROWS)
    i_s = gl.program_id(0) % n_s * 2 * ROWS
    i_bh = gl.program_id(0) // n_s
    i_hk = i_bh % (H // GROUP)
    i_b = i_bh // (H // GROUP)
    if BIASED:
        # batch elements, which often share the bias of a head, follow each other
        B = gl.num_programs(0) // n_s // (H // GROUP)
        i_hk = i_bh // B
        i_b = i_bh % B
    seen += i_b.to(gl.int64) * 2 * S
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, QUERIES], dtype)
    s_k = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], k.layout)
    s_v = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], v.layout)
    s_q = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, QUERIES, D], q.layout)
    s_do = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, QUERIES, D], d_out.layout)
    s_ds = gl.allocate_shared_memory(dtype, [4, ROWS, QUERIES], ds_layout)
    s_dq = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 64, 64], dq.layout)
    s_numbers = s_q
    if DROPPED:
        s_numbers = gl.allocate_shared_memory(gl.int32, [STAGES, 1, 1, 1, QUERIES], numbers_q.layout)
    k_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    s_bias = s_q
    bias_full = k_full
    bias_empty = k_full
    if BIASED:
        s_bias = gl.allocate_shared_memory(bias.dtype, [2, 1, 1, QUERIES, ROWS], bias.layout)
        bias_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        bias_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(2):
            mbarrier.init(bias_full.index(i), count=1)
            mbarrier.init(bias_empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(ds_full.index(i), count=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=2)
        mbarrier.init(do_full.index(i), count=1)
        mbarrier.init(do_empty.index(i), count=2)
    mbarrier.init(done, count=2)
    fence_async_shared()
    loads = (
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
    )
    products = (
        dq,
        dk,
        dv,
        seen,
        end_q,
        end_k,
        numbers_k,
        drop_below,
        s_q,
        s_k,
        s_v,
        s_do,
        s_ds,
        s_dq,
        s_numbers,
        k_full,
        v_full,
        q_full,
        q_empty,
        do_full,
        do_empty,
        ds_full,
        done,
        threshold,
        d_theta,
        threshold_scale,
        score_scale,
        output_scale,
        gradient_scale,
        words,
        step_b,
        step_h,
        s_bias,
        bias_full,
        bias_empty,
        starts,
        i_b,
        i_hk,
        i_s,
        H,
        T,
        S,
    )
    gl.warp_specialize(
        [
            (
                product_partition,
                (
                    products,
                    0,
                    D,
                    GROUP,
                    CAUSAL,
                    TABLED,
                    PACKED,
                    ENDED,
                    STARTED,
                    MASKED,
                    BIASED,
                    DROPPED,
                    SCALED,
                    SHIFTED,
                    ROWS,
                    QUERIES,
                    STAGES,
                    PREFETCH,
                ),
            ),
            (
                product_partition,
                (
                    products,
                    1,
                    D,
                    GROUP,
                    CAUSAL,
                    TABLED,
                    PACKED,
                    ENDED,
                    STARTED,
                    MASKED,
                    BIASED,
                    DROPPED,
                    SCALED,
                    SHIFTED,
                    ROWS,
                    QUERIES,
                    STAGES,
                    PREFETCH,
                ),
            ),
            (load_partition, (loads, GROUP, CAUSAL, TABLED, DROPPED, BIASED, ROWS, QUERIES, STAGES, PREFETCH)),
        ],
        [4, 1],
        [240, 24],
    )
