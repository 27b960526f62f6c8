"""Attention on the simplex as its equation, by the `entmax` package, for the kernels to be held to."""

import entmax
import torch

from rela.kernels.attention.activations import alpha_of
from tests.kernels.exactness import seen_by

KINDS = ("sparsemax", "entmax15", "entmax:1.3")
SCALE = 0.6


def simplex_weights(scores: torch.Tensor, activation: str, seen: torch.Tensor | None = None) -> torch.Tensor:
    """The package's weights of each row, and its gradients; zeros where nothing is seen."""
    alpha = alpha_of(activation)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if seen is not None:
        # an empty row becomes one of equal scores, which is set to zero below
        scores = torch.where(seen | ~seen.any(-1, keepdim=True), scores, -1e4)
    if alpha == 2.0:
        weights = entmax.sparsemax(scores, dim=-1)
    elif alpha == 1.5:
        weights = entmax.entmax15(scores, dim=-1)
    else:
        weights = entmax.entmax_bisect(scores, alpha, dim=-1, n_iter=60)
    return weights if seen is None else weights.masked_fill(~seen, 0.0)


def equation(q, k, v, activation, *, scale=SCALE, kept=None, seen=None, **visibility):
    """The context [B, H, T, D] in plain PyTorch; `kept` multiplies the weights, as dropout does."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    if seen is None:
        seen = seen_by(q, k, **visibility)
    weights = simplex_weights(q @ k.mT * scale, activation, seen).to(v.dtype)
    return (weights if kept is None else weights * kept.to(v.dtype)) @ v
