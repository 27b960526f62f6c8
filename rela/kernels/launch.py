"""Launching one kernel again and again with little host time.

`kernel[grid](…)` looks at every argument to find the variant that fits, which takes Triton some twenty microseconds.
Where all that a variant depends on is known to be the same (types, alignment, divisibility by 16, constants), the
variant found by the first launch is launched again at once. The maker of a `Launch` guarantees that. A `Launch` for
other sizes, of which sentences have many, takes the variant that another one has found for arguments of the same kinds.

Descriptors for the tensor memory accelerator are filled in without Triton's Python objects: of a tensor whose layout is
known, the address alone is new, and the descriptor of an address is kept. Tensors are handed over as addresses: of an
object, Triton asks the driver whether its memory is the device's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import knobs

# What follows relies on how a version's launcher takes its arguments: another version launches as Triton does.
KNOWN_VERSIONS = ("3.6.",)
REUSES = os.environ.get("RELA_REUSE_LAUNCHES", "1") == "1" and triton.__version__.startswith(KNOWN_VERSIONS)
MOST_DESCRIPTORS = 256  # of one tensor's place: the allocator gives the same addresses again and again
MOST_VARIANTS = 4096
VARIANTS: dict[tuple, Any] = {}
"""Compiled kernels by all that Triton chooses a variant by (`variant_of`), and by device."""
PARAMETERS: dict[Any, Parameters] = {}
Tiles = Mapping[int, tuple[int, int]]
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

    __slots__ = ("constants", "grid", "kernel", "repeat", "tiles")

    def __init__(self, kernel: Any, grid: tuple[int, ...], constants: dict[str, Any], tiles: Tiles | None = None):
        self.kernel, self.grid, self.constants, self.tiles = kernel, grid, constants, tiles or {}
        self.repeat: Callable[..., None] | None = None

    def __call__(self, *arguments: Any) -> None:
        if self.repeat is None or has_hooks():
            with on_device(arguments[0]):
                self.start(*arguments)
            return
        device = arguments[0].get_device()
        if device == torch._C._cuda_getDevice():
            self.repeat(device, arguments)
        else:
            with torch.cuda.device(device):
                self.repeat(device, arguments)

    def start(self, *arguments: Any) -> None:
        """Launch on the current device: by the variant that another launch has found, else as Triton does."""
        if not REUSES:
            self.by_triton(arguments)
            return
        device = arguments[0].get_device()
        key = device, *variant_of(self.kernel, arguments, self.constants, self.tiles)
        compiled = None if has_hooks() else VARIANTS.get(key)
        if compiled is not None:
            self.repeat = repeated(self.kernel, compiled, self.grid, arguments, self.constants, self.tiles)
            assert self.repeat is not None  # as of the launch that found the variant
            self.repeat(device, arguments)
            return
        compiled = self.by_triton(arguments)
        if compiled is not None:
            self.repeat = repeated(self.kernel, compiled, self.grid, arguments, self.constants, self.tiles)
        if self.repeat is not None:
            if len(VARIANTS) >= MOST_VARIANTS:
                VARIANTS.clear()
            VARIANTS[key] = compiled

    def by_triton(self, arguments: tuple[Any, ...]) -> Any:
        """Launch as Triton does; the variant it has found, None in the interpreter."""
        return self.kernel[self.grid](*described(arguments, self.tiles), **self.constants)


def variant_of(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any], tiles: Tiles) -> tuple:
    """All that Triton chooses a kernel's variant by, or more: what is equal here has the same variant.

    A number that the kernel takes at run time counts by its kind, even where it stands among the constants.
    """
    parameters = parameters_of(kernel)
    given = list(map(specialised_by, arguments))
    for i in tiles:
        given[i] = arguments[i].dtype, tiles[i]
    for i in parameters.constant_positions:
        if i < len(given):
            given[i] = arguments[i]
    named = dict(constants)
    for name in parameters.run_time_names & named.keys():
        named[name] = specialised_by(named[name])
    return function_of(kernel), *given, *named, *named.values()


class Parameters(NamedTuple):
    """Which of a kernel's parameters are given at run time; of an interpreted kernel none is known to be."""

    run_time_names: frozenset[str]
    constant_positions: tuple[int, ...]


def parameters_of(kernel: Any) -> Parameters:
    if not hasattr(kernel, "params"):
        return Parameters(frozenset(), tuple(range(len(kernel.arg_names))))
    function = function_of(kernel)
    found = PARAMETERS.get(function)
    if found is None:
        constant = [parameter.is_constexpr for parameter in kernel.params]
        names = (parameter.name for parameter in kernel.params if not parameter.is_constexpr)
        found = Parameters(frozenset(names), tuple(i for i, is_constant in enumerate(constant) if is_constant))
        PARAMETERS[function] = found
    return found


def function_of(kernel: Any) -> Any:
    """The Python function of a kernel, which stands for it in a key: the hash of a kernel is that of its source."""
    return getattr(kernel, "fn", kernel)


def specialised_by(x: Any) -> Any:
    """What Triton looks at in an argument that is given at run time: its type, and whether it is 1 or a multiple of 16.

    Triton takes an integer as one of 32 bits, of 64, or of 64 without a sign, by its value.
    """
    kind = type(x)
    if kind is int:
        if 1 < x < 2**31:  # nearly all are
            return x % 16 == 0
        return x == 1, x % 16 == 0, -(2**31) <= x < 2**31, x < 2**63
    if x is None:
        return None
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16
    return tuple(map(specialised_by, x)) if kind is tuple else kind


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
    """A function of device and arguments that launches a compiled kernel as Triton would, or None where it cannot."""
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
    stream_of = torch._C._cuda_getCurrentRawStream
    pointers = tuple(i for i, x in enumerate(arguments) if isinstance(x, Tensor) and i not in tiles)
    start, fill = launcher.launch, None  # type: Any, Any
    maps: list[Map] = []
    if tiles:
        start, fill, maps = unwrapped(launcher.launch, arguments, tiles)

    def again(device: int, arguments: tuple[Any, ...]) -> None:
        given = list(arguments)
        for position in pointers:
            given[position] = given[position].data_ptr()
        for position, facts, numbers, known in maps:
            address = given[position].data_ptr()
            made = known.get(address)
            if made is None:
                if len(known) >= MOST_DESCRIPTORS:
                    known.clear()
                made = known[address] = (fill(address, *facts), *numbers)
            given[position : position + 1] = made
        start(*sizes, stream_of(device), *head, *given, *rest)

    return again


Map = tuple[int, tuple[Any, ...], tuple[int, ...], dict[int, Any]]


def unwrapped(launch: Any, arguments: tuple[Any, ...], tiles: Tiles) -> tuple[Any, Any, list[Map]]:
    """The launcher in C behind Triton's function that makes descriptors, what makes one, and what it wants of each.

    Of each, the last first: its position, all that is wanted after the address, the sizes and strides that follow, and
    the descriptors of addresses that were met.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    inside = dict(zip(launch.__code__.co_freevars, (cell.cell_contents for cell in launch.__closure__), strict=True))
    found: list[Map] = []
    for position, meta in zip(sorted(tiles), inside["tensordesc_meta"], strict=True):
        described_as = described((arguments[position],), {0: tiles[position]})[0]
        shape, strides = described_as.shape, described_as.strides
        kind = meta["swizzle"], meta["elem_size"], TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
        found.append((position, (*kind, meta["block_size"], shape, strides, 0), (*shape, *strides), {}))
    return inside["launcher"], triton.runtime.driver.active.utils.fill_tma_descriptor, found[::-1]


def has_hooks() -> bool:
    """Whether a profiler has set Triton's launch hooks, which every launch must call."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
