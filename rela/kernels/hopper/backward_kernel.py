"""The kernel of the backward pass: shared memory and barriers of two warpgroups that multiply and a warp that loads."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from rela.kernels.hopper.backward_loads import load_partition
from rela.kernels.hopper.backward_products import product_partition


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
    options: gl.constexpr = (
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
    )
    gl.warp_specialize(
        [
            (product_partition, (products, 0) + options),  # noqa: RUF005  Triton knows no stars
            (product_partition, (products, 1) + options),  # noqa: RUF005  Triton knows no stars
            (load_partition, (loads, GROUP, CAUSAL, TABLED, DROPPED, BIASED, ROWS, QUERIES, STAGES, PREFETCH, D, 1)),
        ],
        [4, 1],
        [240, 24],
    )
