"""Dropout in the Hopper kernels: scores.kept for two weights at a time.

The numbers of rows and columns come from tables (tables.py), and their product is one instruction a weight. For two
weights, one more puts the upper halves of the products side by side, one clears their signs, one compares them as
floating-point numbers, whose order is that of their bits, and one multiplies the weights by the resulting ones and
zeros.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def rectified_kept(b_s, b_row, b_column, drop_below, dtype: gl.constexpr):
    """max(0, score) in the input type where dropout keeps the weight, zero elsewhere.

    `drop_below` is the rate as in scores.kept, in both halves of 32 bits.
    """
    b_product = b_row.to(gl.uint32, bitcast=True)[:, None] * b_column.to(gl.uint32, bitcast=True)[None, :]
    b_below = gl.zeros_like(b_product) + drop_below.to(gl.uint32)
    if dtype == gl.bfloat16:
        return gl.inline_asm_elementwise(
            "{.reg .b32 w, x; prmt.b32 x, $3, $4, 0x7632; abs.bf16x2 x, x; set.geu.bf16x2.bf16x2 x, x, $5; "
            "cvt.rn.relu.bf16x2.f32 w, $2, $1; mul.rn.bf16x2 $0, w, x;}",
            "=r,f,f,r,r,r,r",
            [b_s, b_product, b_below],
            dtype=gl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        return gl.inline_asm_elementwise(
            "{.reg .b32 w, x; prmt.b32 x, $3, $4, 0x7632; abs.f16x2 x, x; set.geu.f16x2.f16x2 x, x, $5; "
            "cvt.rn.relu.f16x2.f32 w, $2, $1; mul.rn.f16x2 $0, w, x;}",
            "=r,f,f,r,r,r,r",
            [b_s, b_product, b_below],
            dtype=gl.float16,
            is_pure=True,
            pack=2,
        )
