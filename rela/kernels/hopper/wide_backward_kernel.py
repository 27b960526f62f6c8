"""The kernel of the backward pass for heads that consist of parts: one warpgroup for dK, one for dV and dQ, one warp.

A program owns the ROWS keys of one warpgroup: dK and dV of so many columns fill the registers of one each.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from rela.kernels.hopper.backward_loads import load_partition
from rela.kernels.hopper.wide_backward_products import key_partition, value_partition


@gluon.jit(do_not_specialize=["drop_below", "H", "T", "S", "step_b", "step_h"])
def wide_backward_kernel(
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
    PARTS: gl.constexpr,
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
    n_s = (S + ROWS - 1) // ROWS
    i_s = gl.program_id(0) % n_s * ROWS
    i_bh = gl.program_id(0) // n_s
    i_hk = i_bh % (H // GROUP)
    i_b = i_bh // (H // GROUP)
    seen += i_b.to(gl.int64) * 2 * S
    w_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, QUERIES], dtype)
    s_k = gl.allocate_shared_memory(dtype, [PARTS, 1, 1, ROWS, D], k.layout)
    s_v = gl.allocate_shared_memory(dtype, [PARTS, 1, 1, ROWS, D], v.layout)
    s_q = gl.allocate_shared_memory(dtype, [STAGES * PARTS, 1, 1, QUERIES, D], q.layout)
    s_do = gl.allocate_shared_memory(dtype, [STAGES * PARTS, 1, 1, QUERIES, D], d_out.layout)
    s_w = gl.allocate_shared_memory(dtype, [2, ROWS, QUERIES], w_layout)
    s_dq = gl.allocate_shared_memory(gl.float32, [1, 1, QUERIES, 64], dq.layout)
    s_numbers = s_q
    if DROPPED:
        s_numbers = gl.allocate_shared_memory(gl.int32, [STAGES, 1, 1, 1, QUERIES], numbers_q.layout)
    k_full = gl.allocate_shared_memory(gl.int64, [PARTS, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [PARTS, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    w_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(PARTS):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(w_full.index(i), count=1)
        mbarrier.init(ds_full.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=2)
        mbarrier.init(do_full.index(i), count=1)
        mbarrier.init(do_empty.index(i), count=2)
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
        s_q,
        k_full,
        k_full,
        step_b,
        step_h,
        i_b,
        i_hk,
        i_s,
        T,
        S,
    )
    values = (
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
    )
    keys = (
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
    )
    sizes: gl.constexpr = (D, PARTS, GROUP, CAUSAL, TABLED, PACKED, ROWS, QUERIES, STAGES)
    gl.warp_specialize(
        [
            (value_partition, (values, ENDED, STARTED, MASKED, DROPPED, SCALED, SHIFTED) + sizes),  # noqa: RUF005
            (key_partition, (keys, SHIFTED) + sizes),  # noqa: RUF005  Triton knows no stars
            (
                load_partition,
                (loads, GROUP, CAUSAL, TABLED, DROPPED, BIASED, ROWS, QUERIES, STAGES, PREFETCH, D, PARTS),
            ),
        ],
        [4, 1],
        [240, 24],
    )
