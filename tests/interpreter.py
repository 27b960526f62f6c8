"""Triton's interpreter without what makes it slow: the tests of kernels take a tenth of the time."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any


def make_interpreter_fast() -> None:
    """Spare the interpreter what it does again and again; where that of another version differs, it stays as it is."""
    try:
        patch_language_once_a_launch()
        reduce_xor_by_numpy()
        leave_out_what_nobody_reads()
        make_shapes_once()
        make_tuples_cheap()
        find_types_quickly()
    except (ImportError, AttributeError):
        return


def patch_language_once_a_launch() -> None:
    """Have the functions of triton.language replaced by interpreted ones once for each launch of a kernel.

    The interpreter does so again for every call of a device function, by going through all members of the language, and
    the second time changes nothing. What a launch puts in their places is the same each time, and is kept.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch, scope, launch = interpreter._patch_lang, interpreter._LangPatchScope, interpreter.GridExecutor.__call__
    patched: set[int] = set()  # the ids of the modules that this launch has patched
    replacements: dict[frozenset[int], list[tuple[Any, str, Any]]] = {}

    @functools.cache
    def modules_of(function: Callable[..., Any]) -> frozenset[int]:
        found = (value for value in function.__globals__.values() if inspect.ismodule(value))
        return frozenset(id(value) for value in found if value is tl or value is tl.core)

    def patch_new(function: Callable[..., Any]) -> Any:
        modules = modules_of(function)
        if modules and modules <= patched:
            return scope()
        first = not patched
        patched.update(modules)
        if not first:
            return patch(function)
        if modules not in replacements:
            done = patch(function)
            replacements[modules] = [(place, name, vars(place)[name]) for place, name, _ in done._changes]
            return done
        done = scope()
        for change in replacements[modules]:
            done.set_attr(*change)
        return done

    def launch_afresh(self: Any, *arguments: Any, **options: Any) -> Any:
        patched.clear()
        try:
            return launch(self, *arguments, **options)
        finally:
            patched.clear()

    interpreter._patch_lang = patch_new
    interpreter.GridExecutor.__call__ = launch_afresh


def reduce_xor_by_numpy() -> None:
    """Have numpy reduce by exclusive or, as tl.topk does in every step; the interpreter goes element by element."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    apply, exclusive_or = interpreter.ReduceOps.apply_impl, tl.standard._xor_combine

    def apply_fast(self: Any, inputs: tuple[Any, ...]) -> Any:
        if self.combine_fn is not exclusive_or:
            return apply(self, inputs)
        reduced = np.bitwise_xor.reduce(inputs[0].handle.data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(reduced, inputs[0].dtype)

    interpreter.ReduceOps.apply_impl = apply_fast


def leave_out_what_nobody_reads() -> None:
    """Leave out the second, 64-bit computation of every sum of integers: its comparison is read in debug mode only."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    if not builder.options.debug:
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def make_shapes_once() -> None:
    """Keep what Triton's types and tensors work out from their shapes, which are few."""
    import triton.language.core as core

    constexpr, make_block = core.constexpr, core.block_type.__init__
    blocks: dict[tuple[int, ...], tuple[Any, int, str, Any]] = {}
    no_shape = core.tuple([])

    def make_block_fast(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(size.value if isinstance(size, constexpr) else size for size in shape)
        if sizes not in blocks or not all(size.__class__ is int for size in sizes):
            make_block(self, element_ty, shape)  # refuses what is no shape
            blocks[sizes] = self.shape, self.numel, str(self.shape), core.tuple([constexpr(size) for size in sizes])
        self.element_ty = element_ty
        self.shape, self.numel, written, self.tensor_shape = blocks[sizes]
        self.name = f"<{written}, {element_ty}>"

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        block = type.is_block()
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape = type.tensor_shape if block else no_shape
        self.numel = constexpr(type.numel if block else 1)

    core.block_type.__init__, core.tensor.__init__ = make_block_fast, make_tensor


def make_tuples_cheap() -> None:
    """Work out the type of a tuple of the language when it is asked for, which only the compiler does."""
    import triton.language.core as core

    item, equal = core.tuple.__getitem__, core.tuple.__eq__

    def make_tuple(self: Any, args: Any, type: Any = None) -> None:
        self.values = list(args)
        self._type = core.tuple_type(type) if type is not None and not isinstance(type, core.tuple_type) else type

    def type_of(self: Any) -> Any:
        if self._type is None:
            self._type = core._type_for_tuple_values(self.values)
        return self._type

    def item_fast(self: Any, index: Any) -> Any:
        return self.values[index] if index.__class__ is int else item(self, index)

    def equal_fast(self: Any, other: Any) -> Any:
        return core.constexpr(True) if self is other else equal(self, other)

    core.tuple.__init__, core.tuple.__getitem__, core.tuple.__eq__ = make_tuple, item_fast, equal_fast
    core.tuple.type = property(type_of, lambda self, type: setattr(self, "_type", type))


def find_types_quickly() -> None:
    """Answer the commonest questions about types without going through all answers."""
    import triton.language.core as core
    from triton.runtime import interpreter

    unwrap, equal, numpy_type = core._unwrap_if_constexpr, core.dtype.__eq__, interpreter._get_np_dtype
    numpy_types: dict[str, Any] = {}

    def unwrap_fast(value: Any) -> Any:
        if value.__class__ is int:
            return value
        return value.value if value.__class__ is core.constexpr else unwrap(value)

    def numpy_type_fast(kind: Any) -> Any:
        name = kind.scalar.name
        if name not in numpy_types:
            numpy_types[name] = numpy_type(kind)
        return numpy_types[name]

    core._unwrap_if_constexpr = unwrap_fast
    core.dtype.__eq__ = lambda self, other: self is other or equal(self, other)
    interpreter._get_np_dtype = numpy_type_fast
