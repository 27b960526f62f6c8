"""Operations on one tile that the forward and the backward pass share, in Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared


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
def clear_rows(tile, first, last):
    """Write zeros to all rows of a tile but first … last − 1: others may hold NaN, and zero times NaN is NaN.

    Each warpgroup clears what it is about to read. Two may clear the same rows at once: both write zeros, to rows that
    no query sees.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    PIECE: gl.constexpr = 32
    o_row = gl.arange(0, PIECE, gl.SliceLayout(1, layout))
    for i in gl.static_range(tile.shape[0] // PIECE):
        piece = tile.slice(i * PIECE, PIECE)
        m_seen = (i * PIECE + o_row >= first) & (i * PIECE + o_row < last)
        piece.store(gl.where(m_seen[:, None], piece.load(layout), 0.0))
    fence_async_shared()
