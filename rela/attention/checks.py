"""Argument checks of the functional forms: an error names the argument, what came and what was wanted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rela.attention.kinds import Kind
from rela.device import PLAIN
from rela.packing import Packing

BACKENDS = ("auto", "reference", "triton")


def check_tensors(q: Tensor, k: Tensor, v: Tensor | None, dims: str = "BHTD") -> None:
    """q, k and v agree in rank, batch, head size, type and device; H is a multiple of Hk. `dims` is BHTD or THD."""
    named = [("q", q), ("k", k)] + ([("v", v)] if v is not None else [])
    for name, tensor in named:
        check_like_queries(name, tensor, q, dims)
    if v is not None and v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"v has shape {shape(v)}; wanted {shape(k)} but for the last size, as k")
    heads, key_heads = q.size(1), k.size(1)
    if key_heads == 0 or heads % key_heads:
        raise ValueError(f"k has {key_heads} heads; wanted a divisor of the {heads} heads of q")


def check_like_queries(name: str, tensor: Tensor, q: Tensor, dims: str) -> None:
    """A tensor has the dimensions `dims`, and type, device, batch size and, if it is k, head size of q."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; wanted a tensor")
    if tensor.dim() != len(dims):
        raise ValueError(f"{name} has shape {shape(tensor)}; wanted {len(dims)} dimensions [{', '.join(dims)}]")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} is {tensor.dtype}; wanted a floating point type")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}; wanted a dense tensor")
    if tensor.dtype != q.dtype:
        raise TypeError(f"{name} is {tensor.dtype}; wanted {q.dtype}, as q")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device}; wanted {q.device}, as q")
    if name == "q" and isinstance(tensor.size(-1), int) and tensor.size(-1) == 0:
        raise ValueError(f"q has shape {shape(tensor)}; wanted a head size above 0")
    if tensor.size(-1) != q.size(-1) and name == "k":
        raise ValueError(f"k has head size {tensor.size(-1)}; wanted {q.size(-1)}, as q")
    if dims == "BHTD" and tensor.size(0) != q.size(0):
        raise ValueError(f"{name} has batch size {tensor.size(0)}; wanted {q.size(0)}, as q")


def check_mask(mask: Tensor | None, batch: int, heads: int, queries: int, keys: int, device: torch.device) -> None:
    """A mask is boolean or floating, [T, S] or [B, H, T, S], each size given in full or as 1."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask is a {type(mask).__name__}; wanted a tensor")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"mask is {mask.dtype}; wanted bool (True: may look) or a floating type (added to the scores)")
    if mask.device != device:
        raise ValueError(f"mask is on {mask.device}; wanted {device}, as q")
    wanted = (batch, heads, queries, keys) if mask.dim() == 4 else (queries, keys)
    if mask.dim() not in (2, 4) or any(came not in (1, want) for came, want in zip(mask.shape, wanted, strict=True)):
        full = [batch, heads, queries, keys]
        raise ValueError(f"mask has shape {shape(mask)}; wanted {full[2:]} or {full}, where a size may be 1")


def check_slopes(slopes: Tensor, heads: int, device: torch.device) -> None:
    """Slopes of ALiBi are one number of a floating type for each head."""
    if not isinstance(slopes, Tensor):
        raise TypeError(f"alibi_slopes is a {type(slopes).__name__}; wanted a tensor [{heads}]")
    if not slopes.is_floating_point():
        raise TypeError(f"alibi_slopes is {slopes.dtype}; wanted a floating point type")
    if slopes.shape != (heads,):
        raise ValueError(f"alibi_slopes has shape {shape(slopes)}; wanted [{heads}], one for each head")
    if slopes.device != device:
        raise ValueError(f"alibi_slopes is on {slopes.device}; wanted {device}, as q")


def check_key_limit(limit: Tensor | None, name: str, batch: int, keys: int, device: torch.device) -> None:
    """Key lengths, and key starts, are B whole numbers in [0, S]."""
    if limit is None:
        return
    if not isinstance(limit, Tensor):
        raise TypeError(f"{name} is a {type(limit).__name__}; wanted a tensor")
    if limit.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} is {limit.dtype}; wanted int32 or int64")
    if limit.shape != (batch,):
        raise ValueError(f"{name} has shape {shape(limit)}; wanted [{batch}]")
    if limit.device != device:
        raise ValueError(f"{name} is on {limit.device}; wanted {device}, as q")
    check_limit_values(limit, name, batch, keys)


def check_limit_values(limit: Tensor | None, name: str, batch: int, keys: int) -> None:
    """Key lengths, and key starts, lie in [0, S]; checked only where that waits for no device."""
    if limit is None or not batch or not values_are_cheap(limit):
        return
    if not (int(limit.min()) >= 0 and int(limit.max()) <= keys):
        raise ValueError(f"{name} run from {int(limit.min())} to {int(limit.max())}; wanted 0 to {keys}")


def check_causal(causal: object, name: str = "causal") -> None:
    """Causality is True or False: any other value would silently be taken for one of them."""
    if not isinstance(causal, bool):
        raise TypeError(f"{name} is {'a tensor' if isinstance(causal, Tensor) else repr(causal)}; wanted True or False")


def check_window(window: object) -> None:
    """A window is two whole numbers, keys before and after a query's own; None for no limit on that side."""
    if window is None:
        return
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"window is {window!r}; wanted (left, right), whole numbers or None")
    for side in window:
        if side is not None and (not isinstance(side, (int, torch.SymInt)) or isinstance(side, bool) or side < 0):
            raise ValueError(f"window is {window!r}; wanted whole numbers from 0, or None for no limit")


def check_packing(packing: Packing, of: str, tokens: int, device: torch.device) -> None:
    """Cumulative lengths start at 0, never fall, end within the packed tokens; no sentence is above the longest.

    `of` is "queries" or "keys"; errors call the two parts of the packing what `rela.attend_packed` calls them.
    """
    cu, longest, name, longest_name = packing.cu_seqlens, packing.max_seqlen, f"cu_{of}", f"max_{of}"
    if not isinstance(cu, Tensor) or cu.dtype != torch.int32 or cu.dim() != 1 or cu.numel() < 1:
        found = f"{cu.dtype} {shape(cu)}" if isinstance(cu, Tensor) else type(cu).__name__
        raise ValueError(f"{name} is {found}; wanted an int32 tensor [sentences + 1]")
    if cu.device != device:
        raise ValueError(f"{name} is on {cu.device}; wanted {device}, as q")
    if values_are_cheap(cu) and (int(cu[0]) != 0 or bool((cu.diff() < 0).any()) or int(cu[-1]) > tokens):
        raise ValueError(f"{name} is {cu.tolist()}; wanted 0 first, never falling, at most {tokens} last")
    if not isinstance(longest, (int, torch.SymInt)) or isinstance(longest, bool) or longest < 0:
        raise ValueError(f"{longest_name} is {longest!r}; wanted a whole number, the longest sentence")
    if values_are_cheap(cu) and cu.numel() > 1 and int(cu.diff().max()) > longest:
        # Tokens beyond it would silently be left out.
        came = int(cu.diff().max())
        raise ValueError(f"{name} has a sentence of {came} tokens; wanted at most {longest_name}, {longest}")


def check_options(
    kind: Kind,
    heads: int,
    threshold: float | Tensor,
    dropout: float,
    backend: str,
    scale: float | None = None,
    device: torch.device | None = None,
) -> None:
    """Threshold, dropout, backend and scale make sense together with the kind."""
    if not is_number(dropout) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is {dropout!r}; wanted a probability in [0, 1)")
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; wanted one of {', '.join(BACKENDS)}")
    if isinstance(threshold, Tensor):
        if threshold.shape != (heads,):
            raise ValueError(
                f"threshold has shape {shape(threshold)}; wanted a number or one value for each of {heads} heads"
            )
        if not threshold.is_floating_point():
            raise TypeError(f"threshold is {threshold.dtype}; wanted a floating point type")
        if device is not None and threshold.device != device:
            raise ValueError(f"threshold is on {threshold.device}; wanted {device}, as q")
    elif not is_number(threshold):
        raise TypeError(f"threshold is {threshold!r}; wanted a finite number or a tensor [{heads}]")
    if scale is not None and not is_number(scale):
        raise TypeError(f"scale is {scale!r}; wanted a finite number or None for 1/√D")
    if kind.is_distribution and (isinstance(threshold, Tensor) or threshold != 0.0):
        raise ValueError(f"threshold is set for {kind.weights}, whose weights a threshold cannot change; wanted 0")


def check_own_threshold(kind: Kind, threshold: object) -> None:
    """What a module is given as its threshold: a number, or "learned" where the weights know one."""
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float, str)):
        raise TypeError(f'threshold is a {type(threshold).__name__}; wanted a number or "learned"')
    if isinstance(threshold, str) and threshold != "learned":
        raise ValueError(f'threshold is {threshold!r}; wanted a number or "learned"')
    if threshold == "learned" and kind.is_distribution:
        raise ValueError(f"threshold is learned for {kind.weights}, whose weights a threshold cannot change")


def is_number(value: object) -> bool:
    """Whether this is a finite int or float; True and False are neither."""
    # comparisons: math.isfinite breaks the graph of a compiler for which the value is a symbol
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf


def values_are_cheap(tensor: Tensor) -> bool:
    """Whether there are values, and looking at them neither waits for a device nor breaks a graph."""
    here = tensor.device.type == "cpu" and type(tensor) in PLAIN and not torch.compiler.is_compiling()
    return here and not is_batched(tensor)


def is_batched(tensor: Tensor) -> bool:
    """Whether `vmap` runs over this tensor, so that it stands for many."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
