"""Keys and values that were projected once and are read again at every step of decoding."""

from __future__ import annotations

import torch
from torch import Tensor


class KVCache:
    """Projected keys and values [B, Hk, S, D] of the positions seen so far.

    Room grows by doubling, so n steps copy O(n) and not O(n²) positions.
    """

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self._keys, self._values = keys, values
        self.length = 0 if keys is None else keys.size(2)

    def __len__(self) -> int:
        return self.length

    @property
    def keys(self) -> Tensor:
        return self._filled(self._keys)

    @property
    def values(self) -> Tensor:
        return self._filled(self._values)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Put T more positions [B, Hk, T, D] behind those already here."""
        if self._keys is None or self._values is None:
            self._keys, self._values, self.length = keys, values, keys.size(2)
            return
        if keys.size(0) != self._keys.size(0) or keys.shape[1::2] != self._keys.shape[1::2]:
            here = [self._keys.size(0), self._keys.size(1), "T", self._keys.size(3)]
            raise ValueError(f"keys have shape {list(keys.shape)}; wanted {here}, as in the cache")
        end = self.length + keys.size(2)
        if end > self._keys.size(2):
            self._keys, self._values = (self._with_room(old, end) for old in (self._keys, self._values))
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end

    def reorder(self, rows: Tensor) -> None:
        """Make row i what row `rows[i]` was; rows may repeat (beams) or be fewer (finished sentences leave)."""
        if self._keys is not None and self._values is not None:
            self._keys = self.keys.index_select(0, rows)
            self._values = self.values.index_select(0, rows)

    def _with_room(self, old: Tensor, needed: int) -> Tensor:
        batch, heads, room, size = old.shape
        new = old.new_zeros(batch, heads, max(needed, 2 * room, 16), size)
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def _filled(self, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            raise ValueError("the cache is empty; append keys and values first")
        return tensor[:, :, : self.length]

    def to(self, device: torch.device) -> KVCache:
        """A copy on another device."""
        return self if self._keys is None else KVCache(self.keys.to(device), self.values.to(device))
