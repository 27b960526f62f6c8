"""A sum in float32 as numbers of 16 bits, by a launch that costs the host less than PyTorch's conversion."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.launch import Launch

BLOCK = 4096  # numbers of one program, sixteen a thread


def planned(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function from float32 tensors [B, H, N, D] that lie in memory as [B, N, H, D] to the same in `dtype`."""
    _, H, N, D = shape
    strides = N * H * D, D, H * D, 1
    if dtype == torch.float32 or not shape.numel():
        return lambda x: x.to(dtype)
    start = Launch(convert_kernel, (-(-shape.numel() // BLOCK),), {"n": shape.numel(), "BLOCK": BLOCK, "num_warps": 8})

    def run(x: Tensor) -> Tensor:
        out = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        start(out, x)
        return out

    return run


@triton.jit
def convert_kernel(out, x, n, BLOCK: tl.constexpr):
    o_n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + o_n, tl.load(x + o_n, mask=o_n < n).to(out.dtype.element_ty), mask=o_n < n)
