"""The kernel of the forward pass: shared memory and barriers of two warpgroups that multiply and a warp that loads."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from rela.kernels.hopper.forward_loads import load_partition
from rela.kernels.hopper.forward_products import product_partition


@gluon.jit(do_not_specialize=["drop_below", "B", "H", "heads", "group", "T", "S", "step_b", "step_h"])
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
    heads,
    group,
    T,
    S,
    step_b,
    step_h,
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
    dtype: gl.constexpr = q.dtype
    s_q = gl.allocate_shared_memory(dtype, [2 * QUERY_STAGES * PARTS, 1, 1, ROWS, D], q.layout)
    s_o = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], out.layout)
    s_k = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, D], k.layout)
    s_v = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, D], v.layout)
    s_numbers = s_q
    if DROPPED:
        s_numbers = gl.allocate_shared_memory(gl.int32, [STAGES, 1, 1, 1, KEYS], numbers_k.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2 * QUERY_STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2 * QUERY_STAGES, 1], mbarrier.MBarrierLayout())
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
    for i in gl.static_range(2 * QUERY_STAGES):
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
        heads,
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
        heads,
        T,
        S,
    )
    options: gl.constexpr = (
        D,
        PARTS,
        AHEAD,
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
        QUERY_STAGES,
        BIAS_STAGES,
    )
    stages: gl.constexpr = (ROWS, KEYS, STAGES, QUERY_STAGES, BIAS_STAGES, D, PARTS)
    gl.warp_specialize(
        [
            (product_partition, (0, products) + options),  # noqa: RUF005  Triton knows no stars
            (product_partition, (1, products) + options),  # noqa: RUF005  Triton knows no stars
            (load_partition, (loads, CAUSAL, LONGEST_FIRST, TABLED, DROPPED, BIASED) + stages),  # noqa: RUF005
        ],
        [4, 1],
        [240, 24],
    )
