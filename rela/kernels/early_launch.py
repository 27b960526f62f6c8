"""Kernels of a chain that start before the one in front has ended (programmatic dependent launch, Hopper and later).

A short kernel spends much of its time on being launched and on its first loads. Launched early, it asks for what was
written before the chain began, such as weights, and then waits until the kernel in front has ended and its results can
be seen. Every kernel of a chain must wait before it ends and before it writes, whether or not it reads what the one in front
wrote: the next relies on it. The first of a chain is launched as any other, so that a chain never begins before what
came before it has ended.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def early(in_chain: bool, tensor: Tensor, first: bool = False) -> dict[str, Any]:
    """Launch options for a kernel with a parameter EARLY, on the device of a tensor; `first` of a chain or behind another."""
    if in_chain and tensor.is_cuda and has_early_launch(tensor.device):
        return {"EARLY": True, "launch_pdl": not first}
    return {"EARLY": False}


@cache
def has_early_launch(device: torch.device) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 9


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """The kernel behind may be launched, once every program of this one has said so."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_results(EARLY: tl.constexpr):
    """What comes after this sees all that the kernels in front have written."""
    if EARLY:
        gdc_wait()


@triton.jit
def ask_for(pointers, EARLY: tl.constexpr):
    """Have what the pointers [BM, BN] point to, one for each 128 bytes, brought to the L2 cache, and wait for nothing."""
    if EARLY:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [pointers.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
