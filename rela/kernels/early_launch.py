"""Kernels of a chain that start before the one in front has ended (programmatic dependent launch, Hopper and later).

A short kernel spends much of its time on being launched and on its first loads. Launched early, it asks for what
no other kernel writes, the weights, and then waits until the kernel in front has ended and its results can be seen.
Every kernel of a chain must wait, whether or not it reads what the one in front wrote: the next relies on it.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ENABLED = True


def early(tensor: Tensor) -> dict[str, Any]:
    """Launch options for a kernel whose last parameter is EARLY, on the device of a tensor."""
    if ENABLED and tensor.is_cuda and has_early_launch(tensor.device):
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}


@cache
def has_early_launch(device: torch.device) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 9


@triton.jit
def wait_for_results(EARLY: tl.constexpr):
    """What comes after this sees all that the kernels in front have written."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
