"""Launching one kernel again and again with little host time.

`kernel[grid](…)` looks at every argument to find the variant that fits, which takes Triton some twenty microseconds.
Where all that a variant depends on is known to be the same (types, alignment, divisibility by 16, constants), the
variant found by the first launch is launched again at once. Whoever makes a `Launch` promises that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from triton import knobs

# Off until it has been measured on a device; tests/kernels/test_launch.py compares both ways on a GPU.
REUSES = os.environ.get("RELA_REUSE_LAUNCHES") == "1"


class Launch:
    """A kernel with its grid, its compile-time constants and the arguments that never change, all by keyword."""

    __slots__ = ("again", "constants", "grid", "kernel")

    def __init__(self, kernel: Any, grid: tuple[int, ...], constants: dict[str, Any]) -> None:
        self.kernel, self.grid, self.constants = kernel, grid, constants
        self.again: Callable[..., None] | None = None

    def __call__(self, *arguments: Any) -> None:
        if self.again is not None and not has_hooks():
            self.again(*arguments)
            return
        compiled = self.kernel[self.grid](*arguments, **self.constants)
        if REUSES and compiled is not None:
            self.again = repeated(self.kernel, compiled, self.grid, len(arguments), self.constants)


def repeated(kernel: Any, compiled: Any, grid: tuple[int, ...], count: int, constants: dict[str, Any]) -> Any:
    """A function that launches a compiled kernel as Triton would after it had found it, or None where it cannot."""
    names = kernel.arg_names[count:]
    if torch.version.hip or any(name not in constants for name in names):
        return None
    sizes = (*grid, 1, 1)[:3]
    rest = tuple(constants[name] for name in names)
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    device_of, stream_of = torch.cuda.current_device, torch._C._cuda_getCurrentRawStream

    def again(*arguments: Any) -> None:
        run(*sizes, stream_of(device_of()), function, metadata, None, None, None, *arguments, *rest)

    return again


def has_hooks() -> bool:
    """Whether a profiler of Triton's wants to hear of every launch."""
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return any(getattr(hook, "calls", hook) for hook in hooks)
