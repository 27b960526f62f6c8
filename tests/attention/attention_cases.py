"""What the attention tests share: every kind, and small tensors made from a seed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import rela
from rela.attention import kinds
from rela.attention.weights import weights_of

PARAMETERS = {"entmax": "entmax:1.3", "topk": "topk:3"}
WEIGHTS = tuple(PARAMETERS.get(name, name) for name in kinds.WEIGHTS)
KINDS = (*rela.PRESETS, "entmax:1.3", "topk:3", "relu2+rms", "gelu+layer", "leaky_relu")
RECTIFYING = ("relu", "relu2")
"""Weights that can be exactly zero everywhere in a row: null attention."""
HALVES = (torch.float32, torch.bfloat16, torch.float16)


def normal(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def with_random_parameters(module: nn.Module, seed: int = 0) -> nn.Module:
    """Biases that start at zero and gains that start at one would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(values * (parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5))
    return module


def attention(kind: str, size: int = 12, heads: int = 3, dtype: torch.dtype = torch.float64, **options):
    """A module of `kind` with random parameters, batch first, in float64 unless told otherwise."""
    options = {"batch_first": True, "dtype": dtype, **options}
    return with_random_parameters(rela.MultiheadAttention(size, heads, kind=kind, **options))


STEP = 1e-6


def away_from_kinks(scores: Tensor, weights: str, allowed: Tensor | None) -> None:
    """A finite difference across a kink is no derivative: none may lie within a few steps."""
    p = weights_of(weights)(scores, allowed)
    for moved in (scores + 10 * STEP, scores - 10 * STEP):
        assert torch.equal(weights_of(weights)(moved, allowed) == 0, p == 0), "choose another seed"
