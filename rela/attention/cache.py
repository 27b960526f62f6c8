"""Keys and values that were projected once and are read again at every step of decoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KVCache:
    """Projected keys and values [B, Hk, S, D] of the positions seen so far.

    Capacity grows by doubling, so n steps copy O(n) and not O(n²) positions. Where gradients are recorded, positions
    are concatenated instead, since writing in place would overwrite tensors that autograd has saved. So they are behind
    those of inference mode, which cannot be written to outside it.
    """

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self.length = 0
        self.owner: nn.Module | None = None
        """The attention whose forward appends to this cache: that of another one is an error. None until the first."""
        if (keys is None) != (values is None):
            raise ValueError("keys and values were not given together; wanted both or neither")
        if keys is not None and values is not None:
            self.append(keys, values)

    def __len__(self) -> int:
        return self.length

    @property
    def keys(self) -> Tensor:
        return self._filled(self._keys)

    @property
    def values(self) -> Tensor:
        return self._filled(self._values)

    @property
    def state(self) -> tuple[Tensor | None, Tensor | None, int, nn.Module | None]:
        """What the cache holds now; what is appended later changes none of it, so it can be set again."""
        return self._keys, self._values, self.length, self.owner

    @state.setter
    def state(self, state: tuple[Tensor | None, Tensor | None, int, nn.Module | None]) -> None:
        self._keys, self._values, self.length, self.owner = state

    def append(self, keys: Tensor, values: Tensor, recorded: bool = False) -> None:
        """Put T more positions [B, Hk, T, D] behind those already here.

        `recorded` says that gradients are recorded of what looks at them, though they may need none themselves.
        """
        check_pair(keys, values)
        if self._keys is None or self._values is None:
            self._keys, self._values, self.length = keys, values, keys.size(2)
            return
        for name, new, old in (("keys", keys, self._keys), ("values", values, self._values)):
            check_fits(name, new, old)
        end = self.length + keys.size(2)
        if (
            recorded
            or is_read_only(self._keys)
            or any(x.requires_grad for x in (keys, values, self._keys, self._values))
        ):
            self._keys, self._values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
            self.length = end
            return
        if end > self._keys.size(2):
            self._keys, self._values = (self._with_capacity(old, end) for old in (self._keys, self._values))
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end

    def reorder(self, rows: Tensor) -> None:
        """Make row i what row `rows[i]` was; rows may repeat (beams) or be fewer (finished sentences leave)."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)

    def _with_capacity(self, old: Tensor, needed: int) -> Tensor:
        batch, heads, capacity, size = old.shape
        new = old.new_zeros(batch, heads, max(needed, 2 * capacity, 16), size)
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def _filled(self, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            raise ValueError("the cache is empty; append keys and values first")
        return tensor[:, :, : self.length]

    def __copy__(self) -> KVCache:
        """A cache of the same positions; what is appended to one of the two is not in the other."""
        return KVCache() if self._keys is None else KVCache(self.keys, self.values)

    def __getstate__(self) -> dict:
        # A copy may go on with a copy of the attention.
        return {**self.__dict__, "owner": None}

    def to(self, device: torch.device) -> KVCache:
        """A copy on another device."""
        return KVCache() if self._keys is None else KVCache(self.keys.to(device), self.values.to(device))


def check_pair(keys: Tensor, values: Tensor) -> None:
    """Keys and values are [B, Hk, T, D] and agree but for the head size."""
    for name, tensor in (("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} are a {type(tensor).__name__}; wanted a tensor")
        if tensor.dim() != 4:
            raise ValueError(f"{name} have shape {list(tensor.shape)}; wanted [B, Hk, T, D]")
    if keys.shape[:3] != values.shape[:3]:
        raise ValueError(f"values have shape {list(values.shape)}; wanted {list(keys.shape[:3])} first, as keys")


def check_fits(name: str, new: Tensor, old: Tensor) -> None:
    """New positions have the batch, heads, head size, type and device of those in the cache."""
    if new.shape[:2] != old.shape[:2] or new.size(3) != old.size(3):
        here = [old.size(0), old.size(1), "T", old.size(3)]
        raise ValueError(f"{name} have shape {list(new.shape)}; wanted {here}, as in the cache")
    if new.dtype != old.dtype:
        raise TypeError(f"{name} are {new.dtype}; wanted {old.dtype}, as in the cache")
    if new.device != old.device:
        raise ValueError(f"{name} are on {new.device}; wanted {old.device}, as in the cache")


def is_read_only(tensor: Tensor) -> bool:
    """Whether a tensor was made in inference mode, and that is over; a compiler does not tell."""
    if torch.compiler.is_compiling():
        return False
    return tensor.is_inference() and not torch.is_inference_mode_enabled()
