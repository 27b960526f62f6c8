"""The warp of the forward pass that loads: which tiles a program computes, in which order, and their copies."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def share(n):
    """How many of n tiles this program computes: one of every round, alternately from the front and from the back."""
    P = gl.num_programs(0)
    i_last = gl.program_id(0)
    if (n // P) % 2 == 1:
        i_last = P - 1 - i_last
    return n // P + gl.where(i_last < n % P, 1, 0)


@gluon.jit
def place(i_round, n_t, B, H, heads, LONGEST_FIRST: gl.constexpr, BIASED: gl.constexpr):
    """Tile of queries, head and batch element that this program computes in a round.

    Causal: a group of `heads` follows the other, and its keys stay in the cache. The rows of a group become shorter
    from tile to tile, those of the next longer, and those of the last shorter, so that neighbours are of about equal
    length. The program that had the longest of one round has the shortest of the next. Otherwise all tiles of a head
    follow each other. BIASED: so do batch elements, which often share the bias of a head.
    """
    P = gl.num_programs(0)
    i = gl.program_id(0)
    if i_round % 2 == 1:
        i = P - 1 - i
    i += i_round * P
    if LONGEST_FIRST:
        i_g = i // (heads * n_t)
        i -= i_g * heads * n_t
        in_group = gl.minimum(heads, B * H - i_g * heads)
        i_bh = i_g * heads + i % in_group
        i_t = i // in_group
        if ((B * H - 1) // heads - i_g) % 2 == 0:
            i_t = n_t - 1 - i_t
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
def later(stage, phase, n, STAGES: gl.constexpr):
    """Stage and phase of the tile that is loaded n tiles later; n is at most STAGES."""
    stage += n
    if stage >= STAGES:
        stage -= STAGES
        phase ^= 1
    return stage, phase


@gluon.jit
def load_parts(
    tensor,
    i_b,
    i_h,
    row,
    target,
    full,
    empty,
    stage,
    phase,
    MORE_BYTES: gl.constexpr,
    D: gl.constexpr,
    PARTS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Copy the parts of a tile, each as soon as there is room. The first one's barrier expects MORE_BYTES, too."""
    for i_p in gl.static_range(PARTS):
        at, at_phase = later(stage, phase, i_p, STAGES)
        mbarrier.wait(empty.index(at), at_phase)
        mbarrier.expect(full.index(at), tensor.block_type.nbytes + (MORE_BYTES if i_p == 0 else 0))
        tma.async_copy_global_to_shared(tensor, [i_b, i_h, row, i_p * D], full.index(at), target.index(at))


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
    QUERY_STAGES: gl.constexpr,
    BIAS_STAGES: gl.constexpr,
    D: gl.constexpr,
    PARTS: gl.constexpr,
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
        heads,
        group,
        T,
        S,
    ) = arguments
    n_t = (T + 2 * ROWS - 1) // (2 * ROWS)
    stage = 0
    phase = 1  # the stages are empty at first
    q_stage = 0
    q_phase = 1
    bias_stage = 0
    bias_phase = 1
    for i_round in range(share(n_t * H * B)):
        i_t, i_h, i_b = place(i_round, n_t, B, H, heads, LONGEST_FIRST, BIASED)
        row = i_t * 2 * ROWS
        seen_here = seen + i_b.to(gl.int64) * 2 * T
        first, last = span(seen_here, row, gl.minimum(row + 2 * ROWS, T), T, S, KEYS, CAUSAL, TABLED)
        for i_w in gl.static_range(2):
            i_q = q_stage * 2 + i_w
            mbarrier.wait(q_empty.index(i_q), q_phase)
            mbarrier.expect(q_full.index(i_q), PARTS * q.block_type.nbytes)
            for i_p in gl.static_range(PARTS):
                tma.async_copy_global_to_shared(
                    q, [i_b, i_h, row + i_w * ROWS, i_p * D], q_full.index(i_q), s_q.index(i_q * PARTS + i_p)
                )
        q_stage += 1
        if q_stage == QUERY_STAGES:
            q_stage = 0
            q_phase ^= 1
        for i_s in range(first, last):
            i_hk = i_h // group
            more_bytes: gl.constexpr = numbers_k.block_type.nbytes if DROPPED else 0
            load_parts(k, i_b, i_hk, i_s * KEYS, s_k, k_full, k_empty, stage, phase, more_bytes, D, PARTS, STAGES)
            if DROPPED:
                tma.async_copy_global_to_shared(
                    numbers_k, [i_b, i_h, 0, i_s * KEYS], k_full.index(stage), s_numbers.index(stage)
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
            load_parts(v, i_b, i_hk, i_s * KEYS, s_v, v_full, v_empty, stage, phase, 0, D, PARTS, STAGES)
            stage, phase = later(stage, phase, PARTS, STAGES)
