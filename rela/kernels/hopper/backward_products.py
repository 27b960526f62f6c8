"""A warpgroup of the backward pass: the five products of its ROWS keys with the queries that see them.

Sᵀ and dPᵀ leave keys as rows, so that wᵀ and dSᵀ are in the registers where the products of dV and dK want them. Only
dS goes through shared memory: each warpgroup computes one half of the tile of dQ over all keys of the program and adds
it to a float32 buffer through the tensor memory accelerator.
"""

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

from rela.kernels.hopper.backward_loads import span
from rela.kernels.hopper.dropout import rectified_kept
from rela.kernels.hopper.mask import load_words, not_hidden, seen_only
from rela.kernels.hopper.tile_operations import clear_rows, rectified


@builtin
def async_add_shared_to_global(tensor_desc, coord, src, _semantic=None):
    """Add a tile to global memory; tma.store_wait waits for it too."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, coord, src.handle)


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
def ranges(
    seen,
    i_s,
    row,
    T,
    S,
    KEYS: gl.constexpr,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLED: gl.constexpr,
):
    """First tile of queries that sees a key of the program, first and one past the last that see all ROWS, the end."""
    first, n_t = span(seen, i_s, T, S, KEYS, QUERIES, CAUSAL, TABLED)
    whole = first
    whole_end = n_t
    if TABLED:
        whole = (gl.load(seen + gl.minimum(row + ROWS, S) - 1) + QUERIES - 1) // QUERIES
        whole = gl.minimum(gl.maximum(whole, first), n_t)
        whole_end = gl.load(seen + S + gl.minimum(row, S - 1)) // QUERIES
        whole_end = gl.minimum(gl.maximum(whole_end, whole), n_t)
    elif CAUSAL:
        whole = gl.minimum(gl.maximum(row + ROWS - 1 + T - S + QUERIES - 1, 0) // QUERIES, n_t)
        whole = gl.maximum(whole, first)
    return first, whole, whole_end, n_t


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
    first, whole, whole_end, n_t = ranges(seen, i_s, i_s + I_W * ROWS, T, S, 2 * ROWS, ROWS, QUERIES, CAUSAL, TABLED)
    total = 0
    if PACKED:
        total = gl.load(end_q)
    if TABLED:
        b_first = gl.load(seen + gl.minimum(o_s, S - 1))
        b_last = gl.load(seen + S + gl.minimum(o_s, S - 1))
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
                        fence_async_shared()  # in registers before the accelerator may write the next ones
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
