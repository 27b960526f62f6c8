"""Row statistics inside the Hopper forward pass, in Gluon: each thread keeps its own, and a row is put together once.

A thread holds two rows of a tile of scores, and of each row one pair of neighbours in every eight columns. Of every
tile it counts the zeros among its weights, two at a time and with the multiplier, which has little else to do, and
takes the largest of its scores, whose last bits it has replaced by the number of the eight columns they come from.
Scores that differ only in those bits count as equal: the first wins, and the largest weight is exact to a part in
2²⁰.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LANES = gl.constexpr(8)  # neighbouring columns that are kept apart until the end


@gluon.jit
def rectified_counted(b_s, dtype: gl.constexpr):
    """Weights in the input type, and for the first of each pair two numbers of that type: 1 for a zero, else 0."""
    if dtype == gl.bfloat16:
        # relu(1 − w · 2¹²⁷)
        return gl.inline_asm_elementwise(
            "{ .reg .b32 large, one; mov.b32 large, 0xFF00FF00; mov.b32 one, 0x3F803F80;"
            " cvt.rn.relu.bf16x2.f32 $0, $4, $3; fma.rn.relu.bf16x2 $1, $0, large, one; mov.b32 $2, 0; }",
            "=&r,=&r,=&r,f,f",
            [b_s],
            dtype=(gl.bfloat16, gl.int32),
            is_pure=True,
            pack=2,
        )
    else:
        return gl.inline_asm_elementwise(
            "{ .reg .b32 zero; mov.b32 zero, 0;"
            " cvt.rn.relu.f16x2.f32 $0, $4, $3; set.eq.f16x2.f16x2 $1, $0, zero; mov.b32 $2, 0; }",
            "=&r,=&r,=&r,f,f",
            [b_s],
            dtype=(gl.float16, gl.int32),
            is_pure=True,
            pack=2,
        )


@gluon.jit
def add_bfloat16_pairs(a, b):
    return gl.inline_asm_elementwise(
        "add.rn.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def add_float16_pairs(a, b):
    return gl.inline_asm_elementwise("add.rn.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def bits_of_groups(S, KEYS: gl.constexpr):
    """A mask for the bits of a score that are its own. S is positive, which the compiler does not know: as a constant
    the mask would cost an instruction for every score."""
    return (S >> 31) - KEYS // LANES


@gluon.jit
def observe(b_s, b_flags, own_bits, dtype: gl.constexpr):
    """Zeros of one tile, [ROWS, LANES / 2], and its largest scores with the groups they come from, [ROWS, LANES]."""
    GROUPS: gl.constexpr = b_s.shape[1] // LANES
    b_groups = b_s.reshape([b_s.shape[0], GROUPS, LANES])
    o_group = gl.arange(0, GROUPS, gl.SliceLayout(0, gl.SliceLayout(2, b_groups.type.layout)))
    # as integers, scores above zero are in the order they have as numbers, and others below them
    b_keys = (b_groups.to(gl.int32, bitcast=True) & own_bits) | (GROUPS - 1 - o_group)[None, :, None]
    b_pairs, _ = gl.split(b_flags.reshape([b_s.shape[0], GROUPS, LANES // 2, 2]))
    if dtype == gl.bfloat16:
        b_sums = gl.reduce(b_pairs, 1, add_bfloat16_pairs)
        b_zeros = (b_sums << 16).to(gl.float32, bitcast=True) + (b_sums & -65536).to(gl.float32, bitcast=True)
    else:
        b_sums = gl.reduce(b_pairs, 1, add_float16_pairs)
        b_zeros = b_sums.to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
        b_zeros += (b_sums >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
    return b_zeros, gl.max(b_keys, axis=1)


@gluon.jit
def better(i_s, b_keys, b_best, b_from, KEYS: gl.constexpr):
    """The largest so far and the tiles they come from, one tile further."""
    m_better = (b_keys & -(KEYS // LANES)) > b_best
    return gl.where(m_better, b_keys, b_best), gl.where(m_better, i_s, b_from)


@gluon.jit
def store_statistics(
    rows, p_row, m_row, b_zeros, b_best, b_from, columns, output_scale, layout: gl.constexpr, KEYS: gl.constexpr
):
    """Store each row's non-zeros among `columns`, and index and size of its largest weight (−1 and 0: all are zero)."""
    nonzeros, argmax, largest = rows
    GROUPS: gl.constexpr = KEYS // LANES
    b_count = columns - gl.sum(b_zeros, axis=1).to(gl.int32)
    b_score = b_best & -GROUPS
    b_top = gl.max(b_score, axis=1)
    o_lane = gl.arange(0, LANES, gl.SliceLayout(0, b_best.type.layout))
    b_column = b_from * KEYS + (GROUPS - 1 - (b_best & (GROUPS - 1))) * LANES + o_lane[None, :]
    b_column = gl.min(gl.where(b_score == b_top[:, None], b_column, 2147483647), axis=1)
    b_count = gl.convert_layout(b_count, layout)
    b_column = gl.convert_layout(b_column, layout)
    b_weight = gl.convert_layout(b_top, layout).to(gl.float32, bitcast=True) * output_scale
    gl.store(nonzeros + p_row, b_count, mask=m_row)
    gl.store(argmax + p_row, gl.where(b_count == 0, -1, b_column), mask=m_row)
    gl.store(largest + p_row, gl.where(b_count == 0, 0.0, b_weight), mask=m_row)
