"""Triton's interpreter without what makes it slow: the tests of kernels take a third of the time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def make_interpreter_fast() -> None:
    """Spare the interpreter two things; where that of another version is made otherwise, it is left as it is."""
    try:
        patch_language_once_a_launch()
        reduce_xor_by_numpy()
    except (ImportError, AttributeError):
        return


def patch_language_once_a_launch() -> None:
    """Have the functions of triton.language replaced by interpreted ones once for each launch of a kernel.

    The interpreter does so again for every call of a device function, by going through all members of the language, and
    the second time changes nothing.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch, scope, launch = interpreter._patch_lang, interpreter._LangPatchScope, interpreter.GridExecutor.__call__
    patched: set[int] = set()  # the ids of the modules that this launch has patched

    def patch_new(function: Callable[..., Any]) -> Any:
        modules = {
            id(value)
            for value in function.__globals__.values()
            if inspect.ismodule(value) and (value is tl or value is tl.core)
        }
        if modules and modules <= patched:
            return scope()
        patched.update(modules)
        return patch(function)

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
