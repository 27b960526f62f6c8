"""Which device and precision to compute in, and whether the Triton kernels can serve there."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor
from torch.autograd import forward_ad

TRITON_IS_INSTALLED = importlib.util.find_spec("triton") is not None
PLAIN = (torch.Tensor, torch.nn.Parameter)
KERNEL_TYPES = (torch.float32, torch.bfloat16, torch.float16)

Device = torch.device | str | int | None
"""A device as the constructors of PyTorch take it."""


def pick_device(name: str) -> torch.device:
    """A device by name; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device is {name!r}; wanted auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, and this machine has no usable GPU; wanted auto or cpu")
    return device


def has_bf16(device: torch.device) -> bool:
    """Whether `device` is a GPU that computes in bfloat16: where "auto" precision means bf16."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def triton_is_installed() -> bool:
    """Whether Triton can be imported."""
    return TRITON_IS_INSTALLED


def triton_is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on a CPU: what tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def triton_serves(x: Tensor) -> bool:
    """Whether the kernels of norms, residual sums and centring can take x."""
    return x.is_cuda and x.dtype in KERNEL_TYPES and triton_is_installed()


def triton_serves_half(x: Tensor) -> bool:
    """Whether the kernels for half precision, of the feed-forward layer and the loss, can take x."""
    return x.dtype != torch.float32 and triton_serves(x)


def is_plain_eager(x: object) -> bool:
    """Whether x is a tensor and nothing observes PyTorch's dispatcher: no compiler, tracer, mode, transform or tangent.

    Then a kernel may be called without the dispatcher, and sizes are numbers that can be looked up.
    """
    return (
        not torch.compiler.is_compiling()
        and type(x) in PLAIN
        and torch._C._get_tracing_state() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize)
    )
