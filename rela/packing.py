"""Packing: sentences laid end to end without padding, as a batch, a model and a kernel know them.

Packed rows are [N, ...]. Rows after the last sentence, if there are any, are filler that makes a static shape; they
belong to no sentence. T is the longest length of a packing, B its number of sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where packed sentences begin and end: sentence b is rows cu_seqlens[b] : cu_seqlens[b + 1]."""

    cu_seqlens: Tensor
    """int32 [B + 1]: cumulative lengths, 0 first."""
    max_seqlen: int
    """No sentence is longer."""

    @property
    def sentences(self) -> int:
        """B; sentences of length zero count."""
        return self.cu_seqlens.numel() - 1

    @property
    def lengths(self) -> Tensor:
        """int32 [B]."""
        return self.cu_seqlens.diff()

    def map(self, change: Callable[[Tensor], Tensor]) -> Packing:
        """The same packing with another tensor, such as one on another device."""
        return Packing(change(self.cu_seqlens), self.max_seqlen)

    def sentence_of(self, rows: int) -> Tensor:
        """int64 [rows]: the sentence each packed row belongs to; B for filler."""
        row = torch.arange(rows, device=self.cu_seqlens.device, dtype=self.cu_seqlens.dtype)
        # In all of it, not in cu_seqlens[1:]: compiled for a GPU, searchsorted reads a slice from its tensor's start
        # (pytorch#182343).
        return torch.searchsorted(self.cu_seqlens, row, right=True) - 1

    def pad(self, packed: Tensor, longest: int | None = None) -> Tensor:
        """[N, H, D] to [B, H, T, D] with zeros after each sentence's end; T is `longest`, or else `max_seqlen`."""
        position = torch.arange(self.max_seqlen if longest is None else longest, device=self.cu_seqlens.device)
        inside = position < self.lengths[:, None]  # [B, T]
        if packed.size(0) == 0:
            packed = F.pad(packed, (0, 0, 0, 0, 0, 1))  # a row for the indices to point at
        rows = (self.cu_seqlens[:-1, None] + position).clamp(max=packed.size(0) - 1)
        return packed[rows].masked_fill(~inside[..., None, None], 0.0).transpose(1, 2)

    def unpad(self, dense: Tensor, rows: int) -> Tensor:
        """[B, H, T, D] to packed [rows, H, D]; filler is zero."""
        row = torch.arange(rows, device=self.cu_seqlens.device, dtype=self.cu_seqlens.dtype)
        inside = row < self.cu_seqlens[-1]
        sentence = self.sentence_of(rows).clamp(max=max(self.sentences - 1, 0))
        position = (row - self.cu_seqlens[sentence]).clamp(0, max(dense.size(2) - 1, 0))
        if dense.size(0) == 0 or dense.size(2) == 0:
            return dense.new_zeros(rows, dense.size(1), dense.size(3)) + dense.sum()  # 0, in the graph of gradients
        return dense.transpose(1, 2)[sentence, position].masked_fill(~inside[:, None, None], 0.0)

    def zero_filler(self, packed: Tensor) -> Tensor:
        """Packed [N, ...] with zeros, and zero gradients, in the filler."""
        inside = torch.arange(packed.size(0), device=self.cu_seqlens.device) < self.cu_seqlens[-1]
        return torch.where(inside.view(-1, *[1] * (packed.dim() - 1)), packed, 0.0)


def allowed_pairs(queries: Packing, keys: Packing, causal: bool) -> Tensor:
    """[B, 1, T or 1, S]: True where a padded query may look at a padded key; causal sentences end together if T ≠ S."""
    lengths = keys.lengths
    s = torch.arange(keys.max_seqlen, device=keys.cu_seqlens.device)
    allowed = (s < lengths[:, None])[:, None, None, :]
    if not causal:
        return allowed
    t = torch.arange(queries.max_seqlen, device=keys.cu_seqlens.device)[:, None]
    return allowed & (s <= t + (lengths - queries.lengths)[:, None, None])[:, None]
