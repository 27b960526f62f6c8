"""The decoder's state between steps: keys and values of what it has read and written."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rela.attention.cache import KVCache


@dataclass
class DecoderState:
    """Caches of B sentences with the same number of rows (beams) each, after `position` decoded tokens.

    Cross keys and values are stored once a sentence, not once a row.
    """

    caches: list[KVCache]
    """One a layer: [R, H, position, D]."""
    memories: list[KVCache]
    """One a layer: [B, H, S, D], padded to the longest source."""
    source_lengths: Tensor
    """[B]."""
    position: int = 0
    watched: int | None = None
    """The layer whose cross attention weights each step leaves in `cross_weights`, or None."""
    cross_weights: Tensor | None = None
    """[B, H, K, S]: those of the last step's K rows a sentence."""

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Make row i what row `rows[i]` was, and keep only `sentences` where some have left."""
        for cache in self.caches:
            cache.reorder(rows)
        if sentences is not None:
            for memory in self.memories:
                memory.reorder(sentences)
            self.source_lengths = self.source_lengths.index_select(0, sentences)
