"""Analytic gradients against finite differences in float64: every weight function, every norm, the learned threshold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import rela
from rela.attention.kinds import kind_of
from rela.attention.norms import make_norm
from rela.attention.weights import weights_of
from tests.attention.attention_cases import KINDS, WEIGHTS, attention, normal

STEP = 1e-6


def away_from_kinks(scores: Tensor, weights: str, allowed: Tensor | None) -> None:
    """A finite difference across a kink is no derivative: none may lie within a few steps."""
    p = weights_of(weights)(scores, allowed)
    for moved in (scores + 10 * STEP, scores - 10 * STEP):
        assert torch.equal(weights_of(weights)(moved, allowed) == 0, p == 0), "choose another seed"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [*WEIGHTS, "entmax:2.5"])
def test_weight_functions(weights: str, masked: bool):
    scores = normal(2, 3, 6, seed=1).requires_grad_()
    allowed = None
    if masked:
        allowed = normal(3, 6, seed=2) > -0.5
        allowed[1] = False  # a row without keys has a gradient too: zero
    away_from_kinks(scores.detach(), weights, allowed)
    assert gradcheck(lambda s: weights_of(weights)(s, allowed), scores, eps=STEP, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in rela.NORMS if n != "none"])
def test_norms(name: str):
    """In z, the gain and the gate."""
    norm = make_norm(name, 7, dtype=torch.float64)
    parameters = {n: normal(7, seed=3 + i).requires_grad_() for i, n in enumerate(dict(norm.named_parameters()))}

    def call(z: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(norm, dict(zip(parameters, values, strict=True)), (z,))

    assert gradcheck(call, (normal(4, 7).requires_grad_(), *parameters.values()), eps=STEP, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in rela.NORMS if n != "none"])
def test_norms_at_null_attention(name: str):
    """z = 0 with a step far below √ε, where the norm is as good as linear."""
    norm = make_norm(name, 5, dtype=torch.float64)
    assert gradcheck(norm, torch.zeros(1, 5, dtype=torch.float64, requires_grad=True), eps=1e-8, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("weights", ["relu", "relu2", "gelu", "leaky_relu"])
def test_attend_and_its_threshold(weights: str):
    q, k, v = (normal(1, 4 if n == 0 else 2, 3, 5, seed=n + 7).requires_grad_() for n in range(3))
    theta = torch.tensor([0.3, -0.2, 0.0, 0.1], dtype=torch.float64, requires_grad=True)
    mask = normal(3, 3, seed=4) > -1.0
    away_from_kinks(scores_of(q, k, theta).detach(), weights, mask)

    def call(q: Tensor, k: Tensor, v: Tensor, theta: Tensor) -> Tensor:
        return rela.attend(q, k, v, kind=weights, threshold=theta, mask=mask)

    assert gradcheck(call, (q, k, v, theta), eps=STEP, atol=1e-6)


def scores_of(q: Tensor, k: Tensor, theta: Tensor) -> Tensor:
    return q @ k.repeat_interleave(2, dim=1).mT * q.size(-1) ** -0.5 - theta[:, None, None]


THRESHOLDED = [kind for kind in KINDS if not kind_of(kind).is_distribution]


@pytest.mark.parametrize(("kind", "threshold"), [*((k, 0.0) for k in KINDS), *((k, "learned") for k in THRESHOLDED)])
def test_modules(kind: str, threshold: float | str):
    """All parameters at once, threshold included, with a padded key and a null row by mask."""
    module = attention(kind, 4, 2, threshold=threshold)
    x = normal(1, 3, 4, seed=11)
    hidden = torch.tensor([[False, False, True], [True, True, True], [False, True, False]])
    names, values = zip(*module.named_parameters(), strict=True)

    def call(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(
            module, dict(zip(names, values, strict=True)), (x, x, x), {"attn_mask": hidden}
        )[0]

    assert ("threshold" in names) == (threshold == "learned")
    assert gradcheck(call, (x.requires_grad_(), *values), eps=STEP, atol=1e-5, rtol=1e-4)
