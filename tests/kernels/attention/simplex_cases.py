"""Attention on the simplex as its equation, by the `entmax` package, for the kernels to be held to."""

from typing import Any

import torch

from rela.kernels.attention.activations import alpha_of
from tests.kernels.exactness import seen_by

try:
    import entmax
except ImportError:  # a machine for the GPU tests alone
    entmax = None

KINDS = ("sparsemax", "entmax15", "entmax:1.3")
SCALE = 0.6


class Bisection(torch.autograd.Function):
    """α-entmax of each row and its gradient, where the package is not installed."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, alpha: float) -> torch.Tensor:
        z = (alpha - 1) * (scores - scores.amax(-1, keepdim=True))
        low, high = torch.full_like(z[..., :1], -1.0), torch.zeros_like(z[..., :1])
        for _ in range(60):
            middle = (low + high) / 2
            above = ((z - middle).clamp(min=0) ** (1 / (alpha - 1))).sum(-1, keepdim=True) >= 1
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        p = (z - low).clamp(min=0) ** (1 / (alpha - 1))
        ctx.save_for_backward(p)
        ctx.alpha = alpha
        return p

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor, None]:
        (p,) = ctx.saved_tensors
        s = torch.where(p > 0, p ** (2 - ctx.alpha), 0.0)
        return s * (slope - (s * slope).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None


def simplex_weights(scores: torch.Tensor, activation: str, seen: torch.Tensor | None = None) -> torch.Tensor:
    """The package's weights of each row, and its gradients; zeros where nothing is seen."""
    alpha = alpha_of(activation)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if seen is not None:
        # an empty row becomes one of equal scores, which is set to zero below
        scores = torch.where(seen | ~seen.any(-1, keepdim=True), scores, -1e4)
    if entmax is None:
        weights = Bisection.apply(scores, alpha)
    elif alpha == 2.0:
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
