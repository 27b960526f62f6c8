"""What the attention tests share: every kind, and small tensors made from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.testing import assert_close

import rela
from rela.attention import kinds
from rela.attention.weights import weights_of

PARAMETERS = {"entmax": "entmax:1.3", "topk": "topk:3"}


def every_weights(names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Every name of weights that the library lists, with a parameter where it takes one, so that none is left out."""
    return tuple(PARAMETERS.get(name, name) for name in (kinds.WEIGHTS if names is None else names))


def every_kind() -> tuple[str, ...]:
    """Every preset, every weights without a norm, and the norms that no preset has."""
    norms = [norm for norm in kinds.NORMS if norm not in {kind.norm for kind in kinds.PRESETS.values()}]
    return tuple(dict.fromkeys([*kinds.PRESETS, *every_weights(), *(f"relu2+{norm}" for norm in norms)]))


WEIGHTS = every_weights()
DISTRIBUTIONS = every_weights(kinds.DISTRIBUTIONS)
RECTIFIERS = every_weights(kinds.RECTIFIERS)
KINDS = every_kind()
RECTIFYING = tuple(name for name in RECTIFIERS if not weights_of(name)(torch.tensor([-1.0, -9.0]), None).any())
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


def assert_forbidden_keys_are_absent(weights: str, scores: Tensor, allowed: Tensor) -> None:
    """Weights and slopes of the allowed keys are those without the others, and the others have neither."""
    scores = scores.detach().requires_grad_()
    probe = normal(*scores.shape, seed=17)
    p = weights_of(weights)(scores, allowed)
    (slope,) = torch.autograd.grad((p * probe).sum(), scores)
    short = scores.detach()[:, allowed].requires_grad_()
    q = weights_of(weights)(short, None)
    (short_slope,) = torch.autograd.grad((q * probe[:, allowed]).sum(), short)
    assert_close(p[:, allowed], q, rtol=1e-9, atol=1e-10)
    assert_close(slope[:, allowed], short_slope, rtol=1e-6, atol=1e-8)
    assert not p[:, ~allowed].any(), f"{weights} gives a forbidden key a weight"
    assert not slope[:, ~allowed].any(), f"{weights} gives a forbidden key a slope"
