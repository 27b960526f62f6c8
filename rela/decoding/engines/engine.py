"""The interface between search and a model: encode, start, step, reorder.

`rela.decoding.beam` and `rela.decoding.sampling` know a model only as an `Engine`. The reference (reference.py), the
int8 model (int8.py) and an ensemble of them (ensemble.py) are engines.

The GPU engine (gpu_search.py) keeps the whole search on the device, so it cannot hand log-probabilities back after each
step. It has methods of the same four names over its static buffers, runs its own loop over them, and gives hypotheses.

Letters are those of `rela.attention`: B sentences, K beam width, R = B · K rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Engine(Protocol):
    """A model that search can drive step by step. What `encode` and `start` return only the engine itself looks into.

    Rows are the beams of each sentence, one after another: row b · K + k is beam k of sentence b.
    """

    @property
    def row_multiple(self) -> int:
        """Search keeps the number of rows a multiple of this, by padding rows."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> Any:
        """The encoder's output for B sources of ids, without </s>."""
        ...

    def start(self, encoded: Any) -> Any:
        """The decoder's state before its first step, of B sentences. The first step decides K."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [R, V] of what follows the last token of every row [R], and the state after it.

        The caller may overwrite the log-probabilities.
        """
        ...

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None) -> Any:
        """The state whose row i is what row `rows[i]` was; of these `sentences` alone, unless None."""
        ...
