"""Gluon kernels in plain Python: their own code, over a language in which tensors are arrays and warps are threads.

What this shows without a GPU is what the code says: which tiles it loads, waits for, multiplies and writes, and that no
warp waits for ever. What a compiler makes of it (layouts, registers, products in flight) it cannot show.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.experimental.gluon import language as gluon_language

LONGEST_WAIT = 20.0  # seconds
KINDS = {
    torch.float32: gluon_language.float32,
    torch.float16: gluon_language.float16,
    torch.bfloat16: gluon_language.bfloat16,
    torch.int32: gluon_language.int32,
    torch.int64: gluon_language.int64,
}
ARRAYS = {"fp32": np.float32, "fp16": np.float16, "bf16": np.float32, "int32": np.int32, "int64": np.int64}
ARRAYS |= {"uint32": np.uint32, "int1": np.bool_}


def rounded(values: np.ndarray, kind: Any) -> np.ndarray:
    """Values as a type holds them; bfloat16 in an array of float32."""
    if kind.name == "bf16":
        return torch.from_numpy(np.array(values, dtype=np.float32)).bfloat16().float().numpy()
    return np.asarray(values).astype(ARRAYS[kind.name])


class Value:
    """A tensor or a number of the language."""

    def __init__(self, values: Any, kind: Any = None):
        self.values = np.asarray(values)
        names = {"float32": "float32", "float16": "float16", "bool": "int1", "uint32": "uint32", "int32": "int32"}
        self.dtype = kind or getattr(gluon_language, names.get(self.values.dtype.name, "int64"))
        self.type = types.SimpleNamespace(layout=None)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def to(self, kind: Any, bitcast: bool = False) -> Value:
        if bitcast:
            return Value(self.values.view(ARRAYS[kind.name]), kind)
        return Value(rounded(self.values, kind), kind)

    def reshape(self, shape: list[int]) -> Value:
        return Value(self.values.reshape(shape), self.dtype)

    def broadcast_to(self, shape: list[int]) -> Value:
        return Value(np.broadcast_to(self.values, shape), self.dtype)

    def __getitem__(self, place: Any) -> Value:
        return Value(self.values[place], self.dtype)

    def __index__(self) -> int:
        return int(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __neg__(self) -> Value:
        return Value(-self.values)


def plain(x: Any) -> Any:
    return x.values if isinstance(x, Value) else x


def quotient(a: Any, b: Any) -> Any:
    """a // b as a GPU has it: towards zero."""
    return np.sign(a) * np.sign(b) * (abs(np.asarray(a)) // abs(np.asarray(b)))


def define_operators() -> None:
    import operator as o

    both = {"add": o.add, "sub": o.sub, "mul": o.mul, "mod": o.mod, "lshift": o.lshift, "rshift": o.rshift}
    both |= {"and": o.and_, "or": o.or_, "xor": o.xor, "floordiv": quotient}
    both |= {"eq": o.eq, "ne": o.ne, "lt": o.lt, "le": o.le, "gt": o.gt, "ge": o.ge}

    def with_name(name: str, function: Callable[[Any, Any], Any]) -> None:
        def left(self: Value, other: Any) -> Any:
            if isinstance(other, Pointer):
                return NotImplemented
            with np.errstate(all="ignore"):
                return Value(np.asarray(function(self.values, plain(other))))

        def right(self: Value, other: Any) -> Value:
            with np.errstate(all="ignore"):
                return Value(np.asarray(function(plain(other), self.values)))

        setattr(Value, f"__{name}__", left)
        setattr(Value, f"__r{name}__", right)

    for name, function in both.items():
        with_name(name, function)
    Value.__hash__ = None  # type: ignore[assignment]


class Pointer:
    """A place in the memory of a tensor whose elements follow each other."""

    def __init__(self, memory: np.ndarray, kind: Any, place: Any = 0):
        self.memory, self.kind, self.place = memory, kind, place

    def __add__(self, steps: Any) -> Pointer:
        return Pointer(self.memory, self.kind, plain(self.place) + np.asarray(plain(steps), dtype=np.int64))

    def __sub__(self, steps: Any) -> Pointer:
        return self + -np.asarray(plain(steps), dtype=np.int64)


class Shared:
    """A tensor in shared memory, or a part of one."""

    def __init__(self, values: np.ndarray, kind: Any):
        self.values, self.dtype, self.shape, self.layout = values, kind, values.shape, None

    def index(self, i: Any) -> Shared:
        return Shared(self.values[int(plain(i))], self.dtype)

    def reshape(self, shape: list[int]) -> Shared:
        view = self.values.view()
        view.shape = tuple(shape)  # an error where it would be a copy
        return Shared(view, self.dtype)

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.values.transpose(order), self.dtype)

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        place = [slice(None)] * self.values.ndim
        place[dim] = slice(start, start + length)
        return Shared(self.values[tuple(place)], self.dtype)

    def load(self, layout: Any) -> Value:
        return Value(self.values.copy(), self.dtype)

    def store(self, value: Value) -> None:
        assert self.values.shape == value.shape
        self.values[...] = rounded(value.values, self.dtype)


class Barrier:
    """An mbarrier: a phase ends when so many have arrived and all announced bytes have come."""

    def __init__(self, changed: threading.Condition):
        self.changed, self.count, self.left, self.bytes, self.phase = changed, 0, 0, 0, 0

    def progress(self, arrivals: int, announced: int) -> None:
        with self.changed:
            self.left -= arrivals
            self.bytes += announced
            assert self.left >= 0, "more arrivals than the barrier counts"
            if self.left == 0 and self.bytes == 0:
                self.phase, self.left = self.phase ^ 1, self.count
                self.changed.notify_all()

    def wait(self, phase: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.phase != phase, LONGEST_WAIT):
                raise TimeoutError("a warp waits for ever")


class Barriers:
    def __init__(self, n: int, changed: threading.Condition):
        self.all = [Barrier(changed) for _ in range(n)]

    def index(self, i: Any) -> Barrier:
        return self.all[int(plain(i))]


class Tile:
    """A descriptor: tiles of a tensor, zeros where it ends."""

    def __init__(self, values: np.ndarray, kind: Any, shape: list[int]):
        self.values, self.dtype, self.block, self.layout = values, kind, shape, None
        size = 2 if kind.name in ("bf16", "fp16") else 4
        self.block_type = types.SimpleNamespace(nbytes=int(np.prod(shape)) * size)

    def places(self, corner: list[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """What of the tensor lies in the tile at a corner, and where in the tile."""
        starts = [int(plain(x)) for x in corner]
        ends = [min(start + n, size) for start, n, size in zip(starts, self.block, self.values.shape, strict=True)]
        outer = tuple(slice(start, max(start, end)) for start, end in zip(starts, ends, strict=True))
        return outer, tuple(slice(0, place.stop - place.start) for place in outer)

    def read(self, corner: list[Any]) -> np.ndarray:
        tile = np.zeros(self.block, dtype=self.values.dtype)
        outer, inner = self.places(corner)
        tile[inner] = self.values[outer]
        return tile


class Emulation:
    """One launch: the language that the kernel's functions see, and the programs one after the other."""

    def __init__(self, modules: list[types.ModuleType]):
        self.changed = threading.Condition()
        self.program, self.programs = 0, 1
        fakes = {name: getattr(self, name) for name in ("warpgroup_mma", "warpgroup_mma_wait")}
        fakes |= {"fence_async_shared": lambda: None, "columns_of_threads": lambda rows, columns: None}
        fakes["async_add_shared_to_global"] = self.add
        fakes["gl"] = Language(self)
        fakes["mbarrier"] = types.SimpleNamespace(
            MBarrierLayout=lambda: "barriers",
            init=self.init,
            wait=lambda bar, phase: bar.wait(int(plain(phase))),
            expect=lambda bar, n: bar.progress(1, n),
            arrive=lambda bar: bar.progress(1, 0),
        )
        fakes["tma"] = types.SimpleNamespace(
            async_copy_global_to_shared=self.copy_in,
            async_copy_shared_to_global=self.copy_out,
            store_wait=lambda n: None,
        )
        made: dict[str, Callable[..., Any]] = {}
        for module in modules:
            for name, function in vars(module).items():
                if hasattr(function, "fn") and isinstance(function.fn, types.FunctionType):
                    names = {**function.fn.__globals__, **fakes}
                    code, defaults = function.fn.__code__, function.fn.__defaults__
                    made[f"{function.fn.__module__}.{name}"] = types.FunctionType(code, names, name, defaults)
        for function in made.values():
            for name, original in list(function.__globals__.items()):
                if hasattr(original, "fn") and isinstance(original.fn, types.FunctionType):
                    found = made.get(f"{original.fn.__module__}.{name}")
                    if found is not None:
                        function.__globals__[name] = found
        self.functions = made

    def run(self, kernel: Any, programs: int, arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        """Launch a kernel, and write what it computed to its tensors."""
        copies: list[tuple[Tensor, np.ndarray]] = []
        given = [self.argument(x, copies) for x in arguments]
        constants = {name: value for name, value in constants.items() if name != "num_warps"}
        function = self.functions[f"{kernel.fn.__module__}.{kernel.fn.__name__}"]
        self.programs = programs
        for self.program in range(programs):
            function(*given, **constants)
        for tensor, values in copies:
            tensor.copy_(torch.from_numpy(values))

    def argument(self, x: Any, copies: list[tuple[Tensor, np.ndarray]]) -> Any:
        """A tensor, a descriptor or a number as the kernel sees it; tiles of bfloat16 are noted to be copied back."""
        if not isinstance(x, Tensor) and not hasattr(x, "block_shape"):
            return Value(np.float32(x) if isinstance(x, float) else np.int64(x))
        tensor = (x if isinstance(x, Tensor) else x.base).detach()
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        if isinstance(x, Tensor):  # those that a kernel looks at are contiguous, and none that it writes is of 16 bits
            return Pointer(values.reshape(-1), KINDS[tensor.dtype])
        if tensor.dtype == torch.bfloat16:
            copies.append((tensor, values))
        return Tile(values, KINDS[tensor.dtype], x.block_shape)

    def init(self, bar: Barrier, count: int) -> None:
        bar.count = bar.left = count

    def copy_in(self, tile: Tile, corner: list[Any], bar: Barrier, target: Shared) -> None:
        target.values[...] = tile.read(corner)
        bar.progress(0, -tile.block_type.nbytes)

    def copy_out(self, tile: Tile, corner: list[Any], source: Shared) -> None:
        outer, inner = tile.places(corner)
        tile.values[outer] = source.values[inner]

    def add(self, tile: Tile, corner: list[Any], source: Shared) -> None:
        with self.changed:
            outer, inner = tile.places(corner)
            tile.values[outer] += source.values[inner]

    def warpgroup_mma(self, a: Any, b: Any, total: Value, use_acc: bool = True, is_async: bool = False) -> Value:
        product = a.values.astype(np.float32) @ b.values.astype(np.float32)
        return Value(total.values + product if use_acc else product)

    def warpgroup_mma_wait(self, n: int, values: list[Value]) -> Any:
        return values[0] if len(values) == 1 else values

    def specialize(self, parts: list[tuple[Callable[..., None], tuple[Any, ...]]], *_: Any) -> None:
        """Run the partitions of a kernel side by side."""
        errors: list[BaseException] = []

        def run(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
            try:
                function(*arguments)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=part, daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * LONGEST_WAIT)
        if errors:
            raise errors[0]


class Language:
    """triton.experimental.gluon.language over arrays; layouts are nothing here."""

    def __init__(self, emulation: Emulation):
        self.emulation = emulation
        self.warp_specialize = emulation.specialize

    def __getattr__(self, name: str) -> Any:
        return getattr(gluon_language, name)

    def SliceLayout(self, *_: Any) -> None: ...
    def BlockedLayout(self, *_: Any) -> None: ...
    def NVMMADistributedLayout(self, *_: Any) -> None: ...
    def DotOperandLayout(self, *_: Any) -> None: ...

    @property
    def NVMMASharedLayout(self) -> Any:
        return types.SimpleNamespace(get_default_for=lambda shape, kind: None)

    def static_range(self, *ends: int) -> range:
        return range(*ends)

    def program_id(self, axis: int) -> Value:
        return Value(np.int64(self.emulation.program))

    def num_programs(self, axis: int) -> Value:
        return Value(np.int64(self.emulation.programs))

    def allocate_shared_memory(self, kind: Any, shape: list[int], layout: Any) -> Any:
        if layout == "barriers":
            made = Barriers(shape[0], self.emulation.changed)
            return made if len(shape) > 1 else made.index(0)
        poison = np.nan if kind.name in ("fp32", "fp16", "bf16") else -1
        return Shared(np.full([int(n) for n in shape], poison, dtype=ARRAYS[kind.name]), kind)

    def arange(self, start: int, end: int, layout: Any = None) -> Value:
        return Value(np.arange(start, end, dtype=np.int64))

    def zeros(self, shape: list[int], kind: Any, layout: Any = None) -> Value:
        return Value(np.zeros(shape, dtype=ARRAYS[kind.name]), kind)

    def zeros_like(self, x: Value) -> Value:
        return Value(np.zeros_like(x.values), x.dtype)

    def where(self, condition: Any, a: Any, b: Any) -> Value:
        values = np.where(plain(condition), plain(a), plain(b))
        floats = [plain(x) for x in (a, b) if np.asarray(plain(x)).dtype == np.float32]
        return Value(values.astype(np.float32) if floats else values)

    def minimum(self, a: Any, b: Any) -> Value:
        return Value(np.minimum(plain(a), plain(b)))

    def maximum(self, a: Any, b: Any) -> Value:
        return Value(np.maximum(plain(a), plain(b)))

    def sum(self, x: Value, axis: int) -> Value:
        return Value(x.values.sum(axis))

    def expand_dims(self, x: Value, axis: int) -> Value:
        return Value(np.expand_dims(x.values, axis), x.dtype)

    def convert_layout(self, x: Value, layout: Any, assert_trivial: bool = False) -> Value:
        return x

    def load(self, pointer: Pointer) -> Value:
        return Value(pointer.memory[pointer.place], pointer.kind)

    def store(self, pointer: Pointer, value: Value) -> None:
        pointer.memory[pointer.place] = value.values

    def inline_asm_elementwise(
        self, text: str, constraints: str, arguments: list[Value], dtype: Any, is_pure: bool, pack: int
    ) -> Value:
        """What the instructions of the kernels do, known by the one of them that is unlike all others."""
        with np.errstate(all="ignore"):
            x = [argument.values for argument in arguments]
            if "0xBB99" in text:  # words whose bits 15 and 31 are for a column and the next
                words = x[1][:, 0::2].astype(np.int64)
                seen = np.stack([words >> 15 & 1, words >> 31 & 1], -1).reshape(x[0].shape)
                values = np.where(seen == 1, x[0], 0)
            elif "0xFF80FF80" in text or "0xFC00FC00" in text:
                values = np.where(x[1] != -np.inf, x[0], 0)
            elif "0x7632" in text:
                kept = (x[1].astype(np.int64) >> 16 & 0x7FFF) >= (x[2].astype(np.int64) & 0x7FFF)
                values = np.where(kept, np.maximum(x[0], 0), 0)
            elif "set.neu" in text:
                values = np.where(x[1] != 0, x[0], 0)
            else:
                assert "cvt.rn.relu" in text, text
                values = np.maximum(x[0], 0)
        return Value(rounded(values, dtype), dtype)


define_operators()
