"""Kernels of a chain that start before the one in front has ended (programmatic dependent launch, Hopper and later).

A short kernel spends much of its time on its launch and on its first loads. Launched early, it loads what was written
before the chain began, such as weights. Then it waits until the kernel in front has ended and its results are visible.
Every kernel of a chain must wait before it ends and before it writes, whether or not it reads what the one in front
wrote: the next relies on it. The first kernel of a chain is launched as usual, so that a chain never begins before the
work in front of it has ended.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def early(in_chain: bool, tensor: Tensor, first: bool = False) -> dict[str, Any]:
    """Launch options for a kernel with a parameter EARLY, on a tensor's device; `first` is the first of a chain."""
    if in_chain and tensor.is_cuda and has_early_launch(tensor.device):
        return {"EARLY": True, "launch_pdl": not first}
    return {"EARLY": False}


@cache
def has_early_launch(device: torch.device) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 9


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Let the next kernel be launched, once every program of this one has called this."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_results(EARLY: tl.constexpr):
    """Wait until all that the kernels in front have written is visible."""
    if EARLY:
        gdc_wait()


@triton.jit
def prefetch(pointers, EARLY: tl.constexpr):
    """Bring what the pointers [BM, BN] point to, one for each 128 bytes, to the L2 cache, without waiting."""
    if EARLY:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [pointers.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
