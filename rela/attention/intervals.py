"""The masks of `transformers` as intervals of keys: lengths, starts, a window and causality, where they are no more.

A model makes its mask once and hands it to every layer. The mask stays a dense tensor, for other code that slices,
copies or adds to it. Its intervals are an attribute of that tensor, which a changed mask, being another tensor, lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rela.attention.masks import combine_masks

ATTRIBUTE = "rela_intervals"
DEVICES = ("cuda", "cpu")
"""The devices on which masks are read as intervals: their values can be read, and keys outside are not looked at."""


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
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # values and sizes of another call may differ
    if traced or others.get("use_vmap") or torch.device(device).type not in DEVICES:
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

    No number of them changes from step to step, so that a compiled model and its CUDA graph serve every step. The
    position stays on the device: only the mask is waited for.
    """
    B, S = shape[0], shape[3]
    lengths, starts = (position + 1).repeat(B), None
    if pattern.left is not None:
        starts = (position - pattern.left).clamp(min=0).repeat(B)
    real = None if attention_mask is None else attention_mask[:, kv_offset : kv_offset + S].bool().cpu()
    if real is not None and real.all():
        lengths = lengths.clamp(max=real.size(-1))
    elif real is not None:
        if (run := one_run(real)) is None:
            return None
        begin, end = (x.to(position.device) for x in run)
        lengths = torch.minimum(lengths, end)
        starts = begin if starts is None else torch.maximum(starts, begin)
    return Intervals(S, False, starts, lengths, None, shape)


def run_of(real: Tensor, keys: int) -> tuple[Tensor | None, Tensor | None] | None:
    """Starts and lengths of the ones in each row of a mask, each None if all `keys` are ones; None for other rows."""
    here = real.bool().cpu()  # the one wait for the device: on a CPU the rest costs less than its launches would
    if here.size(-1) == keys and here.all():
        return None, None
    run = one_run(here)
    return None if run is None else (run[0].to(real.device), run[1].to(real.device))


def one_run(real: Tensor) -> tuple[Tensor, Tensor] | None:
    """Where the ones of each row of `real` [B, S] begin and end, if they follow each other; zeros for a row without."""
    if not real.size(-1):
        return real.new_zeros(len(real), dtype=torch.long), real.new_zeros(len(real), dtype=torch.long)
    starts, count = real.view(torch.uint8).argmax(-1), real.sum(-1)
    edges = (real[:, 1:] != real[:, :-1]).sum(-1) + real[:, 0] + real[:, -1]  # of a run two, none in a row without
    return (starts, starts + count) if bool((edges <= 2).all()) else None


def mask_with_intervals(
    found: Intervals,
    device: Any = "cpu",
    causal_skip: bool = False,
    allow_is_bidirectional_skip: bool = False,
    local_size: int | None = None,
    **_others: Any,
) -> Tensor | None:
    """The mask that `sdpa_mask` of `transformers` gives for intervals, with them as an attribute of it.

    To make it of them takes fewer launches, and no second look at values. As there, it is None where nothing is hidden,
    and, with `causal_skip`, where causality alone hides keys; else [B, 1, T, S], True where a query may look.
    """
    _, _, queries, keys = found.shape
    unpadded = found.key_starts is None and found.key_lengths is None and found.keys == keys
    unlimited = found.window is None or (local_size is not None and keys < local_size)
    skips = (causal_skip and queries in (1, keys)) if found.causal else allow_is_bidirectional_skip
    if unpadded and unlimited and skips:
        return None
    with torch.inference_mode(False):  # a mask of inference mode does not count how often it was changed in place
        mask = dense(found, torch.device(device))
        if queries < keys:
            mask = mask.contiguous()  # `generate` asks for this, and would get a copy without the attribute
    setattr(mask, ATTRIBUTE, found._replace(version=version_of(mask)))
    return mask


def dense(found: Intervals, device: torch.device) -> Tensor:
    """The mask [B, 1, T, S] of intervals, True where a query may look."""
    B, _, queries, keys = found.shape
    causal = found.causal and queries > 1  # one query ends where the keys end
    limits = found.key_lengths, causal, queries, found.keys, device, found.key_starts, found.window
    allowed, _ = combine_masks(None, *limits)
    if allowed is None:
        allowed = torch.ones(1, 1, queries, found.keys, dtype=torch.bool, device=device)
    if found.keys < keys:
        allowed = torch.nn.functional.pad(allowed, (0, keys - found.keys))
    return allowed.expand(B, 1, queries, keys)


def intervals_on(mask: Tensor | None, query: Tensor, key: Tensor) -> Intervals | None:
    """The intervals of a mask as it was made, for these queries and keys."""
    found = getattr(mask, ATTRIBUTE, None)
    if mask is None or found is None or found.shape != (query.size(0), 1, query.size(2), key.size(2)):
        return None
    if not torch.compiler.is_compiling() and found.version != version_of(mask):
        return None
    return found


def version_of(mask: Tensor) -> int:
    """How often a tensor was changed in place; -1 for one of inference mode, which does not count."""
    return -1 if mask.is_inference() else mask._version
