"""Launching one kernel again and again with little host time.

`kernel[grid](…)` looks at every argument to find the variant that fits, which takes Triton some twenty microseconds.
Where all that a variant depends on is known to be the same (types, alignment, divisibility by 16, constants), the
variant found by the first launch is launched again at once. Whoever makes a `Launch` promises that. Descriptors for the
tensor memory accelerator are filled in without Triton's Python objects: of a tensor whose layout is known, the address
alone is new.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs

# What follows relies on how a version's launcher takes its arguments: another version launches as Triton does.
KNOWN_VERSIONS = ("3.6.",)
REUSES = os.environ.get("RELA_REUSE_LAUNCHES", "1") == "1" and triton.__version__.startswith(KNOWN_VERSIONS)
Tiles = Mapping[int, tuple[int, int | None]]
"""Of the arguments that are read or written in tiles by the tensor memory accelerator: rows and columns of a tile."""


HERE = contextlib.nullcontext()


def on_device(x: Tensor) -> contextlib.AbstractContextManager:
    """A context in which the GPU that holds x is the current one.

    Triton launches on the current device, whatever its tensors are on: with a model on the second GPU, or spread over
    several, the kernel would run on the first one.
    """
    index = x.device.index
    return HERE if index is None or index == torch.cuda.current_device() else torch.cuda.device(index)


class Launch:
    """A kernel with its grid, its compile-time constants and the arguments that never change, all by keyword.

    The first argument is a tensor on the device to run on. `tiles` are the positions of tensors that the kernel takes
    as descriptors.
    """

    __slots__ = ("again", "constants", "grid", "kernel", "tiles")

    def __init__(self, kernel: Any, grid: tuple[int, ...], constants: dict[str, Any], tiles: Tiles | None = None):
        self.kernel, self.grid, self.constants, self.tiles = kernel, grid, constants, tiles or {}
        self.again: Callable[..., None] | None = None

    def __call__(self, *arguments: Any) -> None:
        with on_device(arguments[0]):
            self.start(*arguments)

    def start(self, *arguments: Any) -> None:
        """Launch on the current device."""
        if self.again is not None and not has_hooks():
            self.again(*arguments)
            return
        compiled = self.kernel[self.grid](*described(arguments, self.tiles), **self.constants)
        if REUSES and compiled is not None:
            self.again = repeated(self.kernel, compiled, self.grid, arguments, self.constants, self.tiles)


def described(arguments: tuple[Any, ...], tiles: Tiles) -> tuple[Any, ...]:
    """The arguments with descriptors in place of tensors that are read in tiles."""
    if not tiles:
        return arguments
    from rela.kernels.hopper.memory import descriptor

    return tuple(descriptor(x, *tiles[i]) if i in tiles else x for i, x in enumerate(arguments))


def repeated(
    kernel: Any,
    compiled: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    tiles: Tiles,
) -> Callable[..., None] | None:
    """A function that launches a compiled kernel as Triton would after it had found it, or None where it cannot."""
    names = kernel.arg_names[len(arguments) :]
    if torch.version.hip or any(name not in constants for name in names):
        return None
    launcher = compiled.run
    if launcher.global_scratch_size or launcher.profile_scratch_size:  # memory that Triton allocates for a launch
        return None
    sizes = (*grid, 1, 1)[:3]
    rest = tuple(constants[name] for name in names)
    options = launcher.launch_cooperative_grid, launcher.launch_pdl, None, None, compiled.packed_metadata
    head = compiled.function, *options, None, None, None
    device_of, stream_of = torch.cuda.current_device, torch._C._cuda_getCurrentRawStream
    if not tiles:
        start = launcher.launch

        def again(*arguments: Any) -> None:
            start(*sizes, stream_of(device_of()), *head, *arguments, *rest)

        return again

    start, maps = unwrapped(launcher.launch, arguments, tiles)
    fill = triton.runtime.driver.active.utils.fill_tma_descriptor

    def again_with_tiles(*arguments: Any) -> None:
        given = list(arguments)
        for position, facts, numbers in maps:
            given[position : position + 1] = fill(given[position].data_ptr(), *facts), *numbers
        start(*sizes, stream_of(device_of()), *head, *given, *rest)

    return again_with_tiles


Map = tuple[int, tuple[Any, ...], tuple[int, ...]]


def unwrapped(launch: Any, arguments: tuple[Any, ...], tiles: Tiles) -> tuple[Callable[..., None], list[Map]]:
    """The launcher in C behind Triton's function that makes descriptors, and what it wants of each, the last first.

    Of each: its position, all that fill_tma_descriptor takes after the address, and the sizes and strides that follow.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    inside = dict(zip(launch.__code__.co_freevars, (cell.cell_contents for cell in launch.__closure__), strict=True))
    found = []
    for position, meta in zip(sorted(tiles), inside["tensordesc_meta"], strict=True):
        described_as = described((arguments[position],), {0: tiles[position]})[0]
        shape, strides = described_as.shape, described_as.strides
        kind = meta["swizzle"], meta["elem_size"], TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
        found.append((position, (*kind, meta["block_size"], shape, strides, 0), (*shape, *strides)))
    return inside["launcher"], found[::-1]


def has_hooks() -> bool:
    """Whether a profiler of Triton's wants to hear of every launch."""
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return any(getattr(hook, "calls", hook) for hook in hooks)
