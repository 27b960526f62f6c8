"""The masks of torch.nn.MultiheadAttention (True: hidden) as `attend` takes them (True: may look)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention import checks
from rela.attention.masks import causal_mask


def merge_module_masks(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    q: Tensor,
    keys: int,
    appended: int,
    batched: bool,
) -> tuple[Tensor | None, bool]:
    """One mask for everything the module was given, and whether `causal` is left to `attend`.

    q is [B, H, T, D]; `keys` real keys are followed by `appended` ones (add_bias_kv, add_zero_attn), open to all.
    """
    checks.check_causal(is_causal, "is_causal")
    if key_padding_mask is None and attn_mask is None and not appended:
        return None, is_causal
    queries = q.size(2)
    padding = as_key_mask(key_padding_mask, q, keys, batched)
    pairs = as_pair_mask(attn_mask, q, keys)
    if is_causal and (pairs is not None or appended):
        is_causal = False
        if pairs is not None:
            pairs = both_masks(pairs, latest_seen(queries, keys, q.device)[None, None])
        else:
            pairs = causal_mask(queries, keys, q.device)[None, None]
    mask = both_masks(padding, pairs)
    if mask is not None and appended:
        mask = F.pad(mask, (0, appended), value=True if mask.dtype == torch.bool else 0.0)
    return mask, is_causal


def as_key_mask(mask: Tensor | None, q: Tensor, keys: int, batched: bool) -> Tensor | None:
    """key_padding_mask [B, S] (or [S], unbatched) to [B, 1, 1, S]."""
    if mask is None:
        return None
    check_is_mask(mask, "key_padding_mask", q)
    wanted = (q.size(0), keys) if batched else (keys,)
    if mask.shape != wanted:
        raise ValueError(f"key_padding_mask has shape {checks.shape(mask)}; wanted {list(wanted)}")
    return may_look(mask, q).reshape(q.size(0), 1, 1, keys)


def as_pair_mask(mask: Tensor | None, q: Tensor, keys: int) -> Tensor | None:
    """attn_mask [T, S] or [B · H, T, S] to [1 or B, 1 or H, T, S]."""
    if mask is None:
        return None
    check_is_mask(mask, "attn_mask", q)
    batch, heads, queries, _ = q.shape
    if mask.shape == (queries, keys):
        return may_look(mask, q)[None, None]
    if mask.shape == (batch * heads, queries, keys):
        return may_look(mask, q).reshape(batch, heads, queries, keys)
    wanted = f"[{queries}, {keys}] or [{batch * heads}, {queries}, {keys}]"
    raise ValueError(f"attn_mask has shape {checks.shape(mask)}; wanted {wanted}")


def check_is_mask(mask: Tensor, name: str, q: Tensor) -> None:
    """A mask is a boolean or floating tensor on q's device."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} is a {type(mask).__name__}; wanted a tensor")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"{name} is {mask.dtype}; wanted bool (True: hidden) or a float type (added to the scores)")
    if mask.device != q.device:
        raise ValueError(f"{name} is on {mask.device}; wanted {q.device}, as query")


def may_look(mask: Tensor, q: Tensor) -> Tensor:
    """A mask turned from "True is hidden" to "True may look"; a float one as it is, in q's type."""
    return ~mask if mask.dtype == torch.bool else mask.to(q.dtype)


def both_masks(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """One mask that hides what either hides; a boolean one becomes 0 or -inf beside a float one."""
    if first is None or second is None:
        return second if first is None else first
    if first.dtype == second.dtype == torch.bool:
        return first & second
    floating = first.dtype if first.is_floating_point() else second.dtype
    return as_bias(first, floating) + as_bias(second, floating)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))


def latest_seen(queries: int, keys: int, device: torch.device) -> Tensor:
    """[T, S], True where `is_causal` beside a mask lets query t look at key s.

    The sequences begin together (torch) or end together (a cache), whichever shows more keys: the two are one when
    T = S, and the mask says which is meant when they are not.
    """
    begun_together = torch.arange(keys, device=device) <= torch.arange(queries, device=device)[:, None]
    return begun_together | causal_mask(queries, keys, device)
