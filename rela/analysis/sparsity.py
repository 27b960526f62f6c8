"""How many attention weights are exactly zero (Figure 3)."""

from __future__ import annotations

from torch import Tensor

from rela.analysis.record import AttentionRecord


def zero_weights(record: AttentionRecord) -> Tensor:
    """[L, H], the number of allowed pairs whose weight is exactly zero."""
    return ((record.weights == 0) & record.allowed).sum(dim=(-2, -1))


def allowed_pairs(record: AttentionRecord) -> int:
    """The number of pairs (t, s) in which query t may look at key s."""
    return int(record.allowed.sum())


def sparsity_rate(record: AttentionRecord) -> Tensor:
    """[L, H], the share of weights that are exactly zero, among the pairs that are allowed at all.

        sparsity = |{(t, s) allowed : α[t, s] = 0}| / |{(t, s) allowed}|

    A weight counts as zero if it is exactly zero in the arithmetic the model computes with, softmax's underflow
    included. In the decoder's self-attention later keys are not allowed, so the causal mask is no sparsity.
    The rate of a layer (Figure 3) is the mean over its heads.
    """
    return zero_weights(record).double() / allowed_pairs(record)
