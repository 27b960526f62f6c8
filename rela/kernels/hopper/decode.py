"""Decoding on Hopper, in Gluon: every row of keys and values is requested long before it is needed.

Which rows of V are needed depends on the scores, so V is requested one tile after the scores of K are known, and its
product comes AHEAD tiles later still: a program never waits for the row it has requested last. Keys and values are the
left sides of their products, because there are sixteen of them to a step where the queries may be eight. A row of V
without a weight is not read; zeros take its place.
"""

from collections.abc import Callable

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.launch import Launch

TILE_BYTES = 8192  # of keys, and of values; four programs fit a processor
WARPS = 2
AHEAD = 2


def keys_of_a_tile(problem: Problem) -> int:
    return TILE_BYTES // (problem.k.shape[3] * problem.k.element_size())


def planned_parts(problem: Problem, splits: int) -> Callable[[Problem, Tensor], None]:
    """A function that fills parts [splits, B, T, H, D] of a problem's context; what sums them up may be launched early.

    It serves all problems that differ from this one in their numbers alone.
    """
    grid = (splits * problem.k.shape[1] * problem.q.shape[0],)
    start, fixed = Launch(decode_kernel, grid, constants(problem)), numbers_of(problem, splits)
    return lambda problem, parts: start(*tensors(problem, parts), *fixed)


def launch(problem: Problem, parts: Tensor, splits: int) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and compile-time constants of the kernel, which lets the next one start at once."""
    return (*tensors(problem, parts), *numbers_of(problem, splits)), constants(problem)


def tensors(problem: Problem, parts: Tensor) -> tuple[Tensor, ...]:
    """The kernel's tensors; q stands for those that it does not look at."""
    q = problem.q
    threshold = q if problem.threshold is None else problem.threshold
    return q, problem.k, problem.v, parts, threshold, q if problem.key_lengths is None else problem.key_lengths


def numbers_of(problem: Problem, splits: int) -> tuple[object, ...]:
    """The kernel's arguments after its tensors, the same for all problems of one layout."""
    q, k, v = problem.q, problem.k, problem.v
    (B, _, T, _), (_, Hk, S, _) = q.shape, k.shape
    keys = keys_of_a_tile(problem)
    score_scale, threshold_scale, output_scale, _ = problem.scales()
    scales = 1.0 if score_scale is None else score_scale, threshold_scale, output_scale
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3]
    return *scales, *strides, B, T, S, splits, ceil_div(ceil_div(S, keys), splits) * keys, Hk


def constants(problem: Problem) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    return {
        "GROUP": problem.q.shape[1] // problem.k.shape[1],
        "D": problem.q.shape[3],
        "BR": hopper.MOST_DECODE_QUERIES,
        "BS": keys_of_a_tile(problem),
        "AHEAD": AHEAD,
        "SCALED": problem.scales()[0] is not None,
        "SHIFTED": problem.threshold is not None,
        "ENDS": problem.key_lengths is not None,
        "num_warps": WARPS,
    }


@gluon.jit
def copy_rows(s_tile, base, start, stride, o_row, o_d, m_row):
    """Ask for rows start + o_row of a matrix; zeros where m_row is False, and nothing is read there."""
    p_rows = base + start.to(gl.int64) * stride + o_row[:, None] * stride + o_d[None, :]
    async_copy.async_copy_global_to_shared(s_tile, p_rows, mask=m_row[:, None])


@gluon.jit
def add_values(b_out, s_v, s_w, left: gl.constexpr, right: gl.constexpr):
    """b_out [D, BR] plus the values [BS, D] times their weights [BS, BR]."""
    return mma_v2(s_v.permute((1, 0)).load(left), s_w.load(right), b_out)


@gluon.jit
def after(slot, SLOTS: gl.constexpr):
    slot += 1
    if slot == SLOTS:
        slot = 0
    return slot


@gluon.jit(do_not_specialize=["B", "T", "S", "splits", "length", "Hk"])
def decode_kernel(
    q,
    k,
    v,
    parts,
    threshold,
    key_lengths,
    score_scale,
    threshold_scale,
    output_scale,
    q_b,
    q_h,
    q_t,
    k_b,
    k_h,
    k_s,
    v_b,
    v_h,
    v_s,
    B,
    T,
    S,
    splits,
    length,
    Hk,
    GROUP: gl.constexpr,
    D: gl.constexpr,
    BR: gl.constexpr,
    BS: gl.constexpr,
    AHEAD: gl.constexpr,
    SCALED: gl.constexpr,
    SHIFTED: gl.constexpr,
    ENDS: gl.constexpr,
):
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
    WARPS: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = k.dtype.element_ty
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, mma, 2)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [WARPS, 1], [1, 0])
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    SLOTS: gl.constexpr = AHEAD + 1  # of keys, and of values
    W_SLOTS: gl.constexpr = AHEAD + 2
    s_k = gl.allocate_shared_memory(dtype, [SLOTS, BS, D], swizzled)
    s_v = gl.allocate_shared_memory(dtype, [SLOTS, BS, D], swizzled)
    s_w = gl.allocate_shared_memory(dtype, [W_SLOTS, BS, BR], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    s_wanted = gl.allocate_shared_memory(gl.float32, [BS], gl.SwizzledSharedLayout(1, 1, 1, [0]))

    i_split = gl.program_id(0) % splits
    i_hk = gl.program_id(0) // splits % Hk
    i_b = gl.program_id(0) // splits // Hk
    k += i_b.to(gl.int64) * k_b + i_hk.to(gl.int64) * k_h
    v += i_b.to(gl.int64) * v_b + i_hk.to(gl.int64) * v_h
    o_row = gl.arange(0, BS, gl.SliceLayout(1, rows))
    o_d = gl.arange(0, D, gl.SliceLayout(0, rows))
    first = i_split * length
    last = gl.minimum(first + length, S)
    if ENDS:
        last = gl.minimum(last, gl.load(key_lengths + i_b).to(gl.int32))
    for i in gl.static_range(AHEAD):
        copy_rows(s_k.index(i), k, first + i * BS, k_s, o_row, o_d, first + i * BS + o_row < last)
        async_copy.commit_group()

    # column r of a tile is query r // GROUP of head i_hk · GROUP + r % GROUP
    columns: gl.constexpr = gl.BlockedLayout([8, 1], [4, 8], [1, WARPS], [0, 1])
    o_q = gl.arange(0, BR, gl.SliceLayout(0, columns))
    o_qd = gl.arange(0, D, gl.SliceLayout(1, columns))
    p_q = q + i_b.to(gl.int64) * q_b + (i_hk * GROUP + o_q % GROUP)[None, :].to(gl.int64) * q_h
    p_q = p_q + (o_q // GROUP)[None, :].to(gl.int64) * q_t + o_qd[:, None]
    # [D, BR]
    b_q = gl.convert_layout(gl.load(p_q, mask=(o_q // GROUP < T)[None, :], other=0.0), right)
    o_r = gl.arange(0, BR, gl.SliceLayout(0, mma))
    o_s = gl.arange(0, BS, gl.SliceLayout(1, mma))
    m_r = o_r // GROUP < T
    if SHIFTED:
        # queries that do not exist are zeros, of which only a threshold below zero could make a weight
        b_theta = gl.load(threshold + i_hk * GROUP + o_r % GROUP).to(gl.float32) * threshold_scale
        b_theta = gl.where(m_r, b_theta, float("inf"))[None, :]
    b_out = gl.zeros([D, BR], gl.float32, mma)
    b_none = gl.zeros([BS, BR], gl.float32, mma)

    n = (gl.maximum(last - first, 0) + BS - 1) // BS
    k_slot = 0  # of tile i
    k_free = AHEAD  # of tile i + AHEAD
    w_slot = 0  # of tile i
    w_old = 0  # of tile i − 1 − AHEAD, whose values have come
    v_slot = 0  # of tile i − 1, whose values are asked for now
    for i in range(n):
        i_s = first + i * BS
        async_copy.wait_group(AHEAD - 1)
        v_old = after(v_slot, SLOTS)
        if i > AHEAD:
            b_out = add_values(b_out, s_v.index(v_old), s_w.index(w_old), left, right)
            w_old = after(w_old, W_SLOTS)
        m_v = s_wanted.load(gl.SliceLayout(1, rows)) != 0.0
        # [BS, BR]
        b_s = mma_v2(s_k.index(k_slot).load(left), b_q, b_none)
        if i > 0:
            copy_rows(s_v.index(v_slot), v, i_s - BS, v_s, o_row, o_d, m_v)
            v_slot = v_old
        copy_rows(s_k.index(k_free), k, i_s + AHEAD * BS, k_s, o_row, o_d, i_s + AHEAD * BS + o_row < last)
        async_copy.commit_group()
        if SCALED:
            b_s = b_s * score_scale
        if SHIFTED:
            # keys past the last are zeros, too
            b_s = gl.where((i_s + o_s < last)[:, None], b_s - b_theta, 0.0)
        b_w = gl.where(b_s <= 0.0, 0.0, b_s).to(dtype)
        s_w.index(w_slot).store(b_w)
        s_wanted.store(gl.max(gl.where(b_w == 0.0, 0.0, 1.0), axis=1))
        k_slot = after(k_slot, SLOTS)
        k_free = after(k_free, SLOTS)
        w_slot = after(w_slot, W_SLOTS)
    # no more keys; the values of the last tile are still to be asked for
    for i in range(n, n + 1 + AHEAD):
        async_copy.wait_group(AHEAD - 1)
        v_old = after(v_slot, SLOTS)
        if i > AHEAD:
            b_out = add_values(b_out, s_v.index(v_old), s_w.index(w_old), left, right)
            w_old = after(w_old, W_SLOTS)
        if i > 0:
            if i == n:
                m_v = s_wanted.load(gl.SliceLayout(1, rows)) != 0.0
                copy_rows(s_v.index(v_slot), v, first + (n - 1) * BS, v_s, o_row, o_d, m_v)
            v_slot = v_old
        async_copy.commit_group()
    # parts are [splits, B, T, H, D]
    o_out = gl.arange(0, D, gl.SliceLayout(1, mma))
    o_t = ((i_split * B + i_b).to(gl.int64) * T + o_r // GROUP) * (Hk * GROUP) + i_hk * GROUP + o_r % GROUP
    gl.store(parts + o_t[None, :] * D + o_out[:, None], b_out * output_scale, mask=m_r[None, :])
