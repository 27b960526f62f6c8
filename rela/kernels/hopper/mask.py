"""Masks in the Hopper kernels: of a boolean one, 32 bits for the columns of a tile that a thread holds in one row.

The words come from tables.mask_words. For two weights, one instruction shifts the word until the bits of both columns
are signs of 16 bits, one turns signs into ones all over, and one takes the other weights away.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime.jit import constexpr_function


@constexpr_function
def columns_of_threads(rows: int, columns: int) -> gl.DistributedLinearLayout:
    """An accumulator [rows, columns] of a warpgroup as [row, j, l, c], where a column is 8 j + 2 l + c.

    A thread has all of j and c for one l, and two rows.
    """
    across = [[0, 1 << i, 0, 0] for i in range((columns // 8).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0], *across],
        lane_bases=[[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[rows, columns // 8, 4, 2],
    )


@gluon.jit
def load_words(words, i_m, i_tile, row, n_tiles, rows, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """[ROWS, 4]: the words of rows `row` … of a tile of 128 columns; rows past the last repeat it."""
    layout: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, columns_of_threads(ROWS, COLUMNS)))
    o_row = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, layout)), rows - 1)
    o_word = gl.arange(0, 4, gl.SliceLayout(0, layout))
    tile = (i_m.to(gl.int64) * n_tiles + gl.minimum(i_tile, n_tiles - 1)) * rows * 4
    return gl.load(words + tile + o_row[:, None] * 4 + o_word[None, :])


@gluon.jit
def seen_only(b_w, b_words):
    """Weights in the input type where the bits of the mask are set, zero elsewhere, even for NaN."""
    ROWS: gl.constexpr = b_w.shape[0]
    COLUMNS: gl.constexpr = b_w.shape[1]
    layout: gl.constexpr = columns_of_threads(ROWS, COLUMNS)
    b_all = gl.expand_dims(gl.expand_dims(b_words, 1), 3)
    # the bits of j are signs after a shift by 15 − j
    b_shift = 15 - gl.arange(0, COLUMNS // 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout))))
    b_shift = gl.expand_dims(gl.expand_dims(gl.expand_dims(b_shift, 0), 2), 3)
    b_signs = (b_all << b_shift).broadcast_to([ROWS, COLUMNS // 8, 4, 2]).reshape([ROWS, COLUMNS])
    b_signs = gl.convert_layout(b_signs, b_w.type.layout, assert_trivial=True)
    return gl.inline_asm_elementwise(
        "{.reg .b32 x; prmt.b32 x, $2, 0, 0xBB99; and.b32 $0, $1, x;}",
        "=r,r,r,r",
        [b_w, b_signs],
        dtype=b_w.dtype,
        is_pure=True,
        pack=2,
    )


@gluon.jit
def not_hidden(b_w, b_bias):
    """Weights where what was added to their scores is not −∞, zero elsewhere, even for NaN."""
    if b_bias.dtype == gl.bfloat16:
        return gl.inline_asm_elementwise(
            "{.reg .b32 x, y; mov.b32 y, 0xFF80FF80; set.neu.u32.bf16x2 x, $2, y; and.b32 $0, $1, x;}",
            "=r,r,r",
            [b_w, b_bias],
            dtype=b_w.dtype,
            is_pure=True,
            pack=2,
        )
    else:
        return gl.inline_asm_elementwise(
            "{.reg .b32 x, y; mov.b32 y, 0xFC00FC00; set.neu.u32.f16x2 x, $2, y; and.b32 $0, $1, x;}",
            "=r,r,r",
            [b_w, b_bias],
            dtype=b_w.dtype,
            is_pure=True,
            pack=2,
        )
