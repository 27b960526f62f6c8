"""The masks of `transformers` as intervals of keys: lengths, starts, a window and causality, where they are no more.

A model makes its mask once and hands it to every layer. The mask stays a dense tensor, for other code that slices,
copies or adds to it. Its intervals are an attribute of that tensor, which a changed mask, being another tensor, lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

ATTRIBUTE = "rela_intervals"
DEVICES = ("cuda",)
"""The devices on which masks are read as intervals: on others they make nothing faster."""


class Intervals(NamedTuple):
    """Of the first `keys` keys, which end where the queries end if `causal`, each query sees an interval."""

    keys: int
    causal: bool
    key_starts: Tensor | None
    key_lengths: Tensor | None
    window: tuple[int | None, int | None] | None
    shape: tuple[int, ...]
    """Of the mask: [B, 1, T, S]."""
    version: int = 0
    """Of the mask: what changes it in place counts it up."""


class Pattern(NamedTuple):
    """What a mask function of `transformers` says, if it is one of those we know."""

    causal: bool = False
    left: int | None = None
    right: int | None = None


def pattern_of(function: Callable) -> Pattern | None:
    """The pattern of a mask function: causal, all to all, a sliding window, or several of them at once."""
    from transformers import masking_utils

    if function is masking_utils.causal_mask_function:
        return Pattern(causal=True)
    if function is masking_utils.bidirectional_mask_function:
        return Pattern()
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    cells = getattr(function, "__closure__", None)
    if module != masking_utils.__name__ or cells is None:
        return None
    held = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    if name == "sliding_window_overlay.<locals>.inner_mask":
        return Pattern(left=held["sliding_window"] - 1)
    if name == "sliding_window_bidirectional_overlay.<locals>.inner_mask":
        return Pattern(left=held["sliding_window"], right=held["sliding_window"])
    if name != "and_masks.<locals>.and_mask":
        return None
    parts = [pattern_of(part) for part in held["mask_functions"]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    lefts, rights = (
        [side for side in sides if side is not None] for sides in zip(*(p[1:] for p in known), strict=True)
    )
    return Pattern(any(part.causal for part in known), min(lefts, default=None), min(rights, default=None))


def intervals_of(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    device: Any = "cpu",
    **others: Any,
) -> Intervals | None:
    """The intervals of a mask that `transformers` asks for with these arguments, or None where they are not all of it.

    Looks at the values of `attention_mask`, as `transformers` does: a row of it must be one run of ones.
    """
    if torch.compiler.is_compiling() or others.get("use_vmap") or torch.device(device).type not in DEVICES:
        return None
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return None  # values cannot be read during a capture
    pattern = pattern_of(mask_function)
    if pattern is None or (pattern.left or 0) < 0:
        return None
    shape = (batch_size, 1, q_length, kv_length)
    if isinstance(q_offset, Tensor) and q_length == 1 and pattern.causal:
        return one_step(shape, pattern, q_offset - kv_offset, kv_offset, attention_mask)
    keys = kv_length
    if pattern.causal or pattern.left is not None:
        keys = int(q_offset) + q_length - kv_offset
        if not 0 < keys <= kv_length or (keys < kv_length and not pattern.causal):
            return None
    run = (None, None) if attention_mask is None else run_of(attention_mask[:, kv_offset : kv_offset + keys], keys)
    if run is None:
        return None
    window = None if pattern.left is None and pattern.right is None else (pattern.left, pattern.right)
    return Intervals(keys, pattern.causal, *run, window, shape)


def one_step(
    shape: tuple[int, ...], pattern: Pattern, position: Tensor, kv_offset: int, attention_mask: Tensor | None
) -> Intervals | None:
    """The intervals of one query at `position`, a scalar on the device, over all keys of a static cache.

    No number of them changes from step to step, so that a compiled model and its CUDA graph serve every step.
    """
    B, S = shape[0], shape[3]
    if attention_mask is None:
        lengths = (position + 1).repeat(B)
        starts = None if pattern.left is None else (position - pattern.left).clamp(min=0).repeat(B)
        return Intervals(S, False, starts, lengths, None, shape)
    real, last = attention_mask[:, kv_offset : kv_offset + S].bool().cpu(), int(position)
    first = 0 if pattern.left is None else last - pattern.left
    index = torch.arange(real.size(-1))
    if (run := one_run(real & (index >= first) & (index <= last))) is None:
        return None
    starts, lengths = (x.to(attention_mask.device) for x in run)
    return Intervals(S, False, starts, lengths, None, shape)


def run_of(real: Tensor, keys: int) -> tuple[Tensor | None, Tensor | None] | None:
    """Starts and lengths of the ones in each row of a mask, each None if all `keys` are ones; None for other rows."""
    here = real.bool().cpu()  # the one wait for the device: on a CPU the rest costs less than its launches would
    if here.size(-1) < keys:
        here = torch.nn.functional.pad(here, (0, keys - here.size(-1)))
    if here.all():
        return None, None
    run = one_run(here)
    return None if run is None else (run[0].to(real.device), run[1].to(real.device))


def one_run(real: Tensor) -> tuple[Tensor, Tensor] | None:
    """Where the ones of each row of `real` [B, S] begin and end, if they follow each other; zeros for a row without."""
    starts, count = real.int().argmax(-1), real.sum(-1)
    index, ends = torch.arange(real.size(-1), device=real.device), starts + count
    run = (index >= starts[:, None]) & (index < ends[:, None])
    return (starts, ends) if torch.equal(run, real) else None


def with_intervals(mask: Tensor | None, arguments: dict[str, Any]) -> Tensor | None:
    """The mask, with its intervals as an attribute where it has them."""
    if mask is None or (found := intervals_of(**arguments)) is None:
        return mask
    if arguments["q_length"] < arguments["kv_length"]:
        mask = mask.contiguous()  # `generate` asks for this, and would get a copy without the attribute
    setattr(mask, ATTRIBUTE, found._replace(version=version_of(mask)))
    return mask


def intervals_on(mask: Tensor | None, query: Tensor, key: Tensor) -> Intervals | None:
    """The intervals of a mask as it was made, for these queries and keys."""
    found = getattr(mask, ATTRIBUTE, None)
    if mask is None or found is None or found.shape != (query.size(0), 1, query.size(2), key.size(2)):
        return None
    if not torch.compiler.is_compiling() and found.version != version_of(mask):
        return None
    return found


def version_of(mask: Tensor) -> int:
    """How often a tensor was changed in place; those of inference mode do not count."""
    return 0 if mask.is_inference() else mask._version
