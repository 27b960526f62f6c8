"""Masks as the functional forms take them: boolean, True where a query may look, or floats added to the scores."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """[T, S], True where key s is not later than query t; the two sequences end together when T ≠ S."""
    t = torch.arange(queries, device=device)[:, None]
    s = torch.arange(keys, device=device)
    return s <= t + (keys - queries)


def length_mask(lengths: Tensor, keys: int) -> Tensor:
    """[B, 1, 1, S], True for the first `lengths[b]` keys of sentence b."""
    return (torch.arange(keys, device=lengths.device) < lengths[:, None])[:, None, None, :]


def start_mask(starts: Tensor, keys: int) -> Tensor:
    """[B, 1, 1, S], False for the first `starts[b]` keys of sentence b."""
    return (torch.arange(keys, device=starts.device) >= starts[:, None])[:, None, None, :]


def window_mask(left: int | None, right: int | None, queries: int, keys: int, device: torch.device) -> Tensor:
    """[T, S], True where key s is at most `left` before and `right` after query t; they end together when T ≠ S."""
    t = torch.arange(queries, device=device)[:, None] + (keys - queries)
    s = torch.arange(keys, device=device)
    inside = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if left is not None:
        inside = inside & (s >= t - left)
    return inside if right is None else inside & (s <= t + right)


def split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, bias) of a mask: a boolean one only allows; a float one is a bias whose -inf forbids."""
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    allowed = mask != float("-inf")
    return allowed, mask.masked_fill(~allowed, 0.0)


def alibi_bias(slopes: Tensor, queries: int, keys: int) -> Tensor:
    """[1, H, T, S]: minus the slope of a head times the distance of key and query; they end together when T ≠ S."""
    t = torch.arange(queries, device=slopes.device)[:, None] + (keys - queries)
    s = torch.arange(keys, device=slopes.device)
    kind = torch.promote_types(slopes.dtype, torch.float32)  # distances are larger than 16 bits hold exactly
    return -slopes.to(kind)[None, :, None, None] * (t - s).abs()


def with_slopes(mask: Tensor | None, slopes: Tensor, queries: int, keys: int) -> Tensor:
    """A mask and the bias of slopes [H] as one float mask."""
    bias = alibi_bias(slopes, queries, keys)
    if mask is None:
        return bias
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask


def combine_masks(
    mask: Tensor | None,
    key_lengths: Tensor | None,
    causal: bool,
    queries: int,
    keys: int,
    device: torch.device,
    key_starts: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, bias) of everything that limits a query; each broadcasts to [B, H, T, S] or is None."""
    allowed, bias = split_mask(mask)
    limits = [allowed] if allowed is not None else []
    if key_lengths is not None:
        limits.append(length_mask(key_lengths, keys))
    if key_starts is not None:
        limits.append(start_mask(key_starts, keys))
    if causal:
        limits.append(causal_mask(queries, keys, device))
    if window is not None and window != (None, None):
        limits.append(window_mask(*window, queries, keys, device))
    if not limits:
        return None, bias
    together = limits[0]
    for limit in limits[1:]:
        together = together & limit
    return together, bias
