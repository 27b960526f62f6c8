"""Argument checks of MultiheadAttention's methods: an error names the argument, what came and what was wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from rela.attention.cache import KVCache
from rela.attention.checks import shape


def check_inputs(inputs: list[tuple[str, Tensor, int]], parameter: Tensor, dims: tuple[int, ...]) -> None:
    """Every (name, tensor, width) has one of `dims` dimensions, as the first has, and the parameter's type and device.

    Under autocast another type will do, since the projections cast it; float64 is not cast.
    """
    for name, tensor, width in inputs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; wanted a tensor")
        if tensor.is_nested:
            raise ValueError(
                f"{name} is a nested tensor; wanted a plain one (forward_packed takes sentences without padding)"
            )
        first_name, first, _ = inputs[0]
        if tensor.dim() not in dims or tensor.dim() != first.dim():
            wanted = " or ".join(str(count) for count in dims)
            raise ValueError(f"{name} has shape {shape(tensor)}; wanted {wanted} dimensions, as many as {first_name}")
        if tensor.size(-1) != width:
            raise ValueError(f"{name} has size {tensor.size(-1)} in its last dimension; wanted {width}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; wanted a floating point type")
        if tensor.device != parameter.device:
            raise ValueError(f"{name} is on {tensor.device}; wanted {parameter.device}, as the parameters")
        if tensor.dtype != parameter.dtype and not is_cast(tensor, parameter):
            raise TypeError(f"{name} is {tensor.dtype}; wanted {parameter.dtype}, as the parameters")


def is_cast(tensor: Tensor, parameter: Tensor) -> bool:
    """Whether autocast gives both one type."""
    return torch.is_autocast_enabled(tensor.device.type) and torch.float64 not in (tensor.dtype, parameter.dtype)


def check_key_and_value(key: Tensor, value: Tensor) -> None:
    """Key and value belong to the same positions."""
    if key.shape[:-1] != value.shape[:-1]:
        raise ValueError(f"value has shape {shape(value)}; wanted as many sentences and positions as key {shape(key)}")


def check_batch(query: Tensor, key: Tensor, batch_dim: int) -> None:
    """Query and key have as many sentences."""
    if query.dim() == 3 and key.size(batch_dim) != query.size(batch_dim):
        raise ValueError(f"key has batch size {key.size(batch_dim)}; wanted {query.size(batch_dim)}, as query")


def check_is_cache(cache: object) -> None:
    """A cache is a KVCache, or None."""
    if cache is not None and not isinstance(cache, KVCache):
        raise TypeError(f"cache is a {type(cache).__name__}; wanted a rela.KVCache")


def check_cache(cache: KVCache, q: Tensor, heads: int, size: int) -> None:
    """The cache was filled by an attention of this shape and type, for as many sentences as q [B, T, C] has."""
    wanted = [q.size(0), heads, "S", size]
    for name, tensor in (("keys", cache.keys), ("values", cache.values)):
        if [tensor.size(0), tensor.size(1), "S", tensor.size(3)] != wanted:
            raise ValueError(f"cache holds {name} of shape {shape(tensor)}; wanted {wanted}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"cache holds {name} of {tensor.dtype}; wanted {q.dtype}, as the projected query")
