"""Scores to weights: each function against a second way to the same answer, and the threshold at its ends."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import rela
from rela.attention import kinds
from rela.attention.weights import FUNCTIONS, rectifier, weights_of
from tests.attention.attention_cases import (
    DISTRIBUTIONS,
    HALVES,
    RECTIFIERS,
    RECTIFYING,
    STEP,
    WEIGHTS,
    assert_forbidden_keys_are_absent,
    attention,
    away_from_kinks,
    every_kind,
    every_weights,
    normal,
)


def entmax_by_bisection(scores: Tensor, alpha: float) -> Tensor:
    """p = [(α-1) s - τ]₊^(1/(α-1)) with the one τ for which Σ p = 1, found by halving an interval."""
    scaled = scores * (alpha - 1)
    low, high = scaled.amax(-1, keepdim=True) - 1, scaled.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        too_much = ((scaled - middle).clamp(min=0) ** (1 / (alpha - 1))).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    return (scaled - low).clamp(min=0) ** (1 / (alpha - 1))


def sparsemax_by_support(scores: list[float]) -> list[float]:
    """Try every support size: the right one has its smallest score above τ and the next one not."""
    ordered = sorted(scores, reverse=True)
    for size in range(1, len(ordered) + 1):
        tau = (sum(ordered[:size]) - 1) / size
        if ordered[size - 1] > tau and (size == len(ordered) or ordered[size] <= tau):
            return [max(score - tau, 0.0) for score in scores]
    raise AssertionError("no support fits")


@settings(deadline=None, max_examples=25)
@given(
    rows=st.integers(1, 5), keys=st.integers(1, 17), spread=st.sampled_from([0.1, 1.0, 30.0]), seed=st.integers(0, 99)
)
@pytest.mark.parametrize("weights", [*DISTRIBUTIONS, "entmax:3"])
def test_distributions_sum_to_one_and_are_never_negative(weights: str, rows: int, keys: int, spread: float, seed: int):
    p = weights_of(weights)(spread * normal(rows, keys, seed=seed), None)
    assert_close(p.sum(-1), torch.ones(rows, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert (p >= 0).all()


@settings(deadline=None, max_examples=25)
@given(keys=st.integers(1, 17), spread=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 99))
@pytest.mark.parametrize(
    ("weights", "alpha"), [("sparsemax", 2.0), ("entmax15", 1.5), ("entmax:1.3", 1.3), ("entmax:3", 3.0)]
)
def test_entmax_agrees_with_bisection(weights: str, alpha: float, keys: int, spread: float, seed: int):
    scores = spread * normal(3, keys, seed=seed)
    assert_close(weights_of(weights)(scores, None), entmax_by_bisection(scores, alpha), rtol=1e-7, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=9, unique=True))
def test_sparsemax_agrees_with_a_search_for_its_support(scores: list[float]):
    expected = torch.tensor(sparsemax_by_support(scores), dtype=torch.float64)
    assert_close(weights_of("sparsemax")(torch.tensor(scores, dtype=torch.float64), None), expected, rtol=0, atol=1e-9)


def test_every_name_has_its_function():
    assert {*FUNCTIONS, *kinds.PARAMETERS} == set(kinds.WEIGHTS)


def test_known_answers():
    def answer(weights: str, *scores: float) -> list[float]:
        return weights_of(weights)(torch.tensor(scores, dtype=torch.float64), None).tolist()

    assert answer("sparsemax", 0.5, 0.0, -5.0) == pytest.approx([0.75, 0.25, 0.0])
    assert answer("entmax15", 3.0, 0.0) == pytest.approx([1.0, 0.0])
    assert answer("entmax15", 1.0, 0.0) == pytest.approx([(0.25 + 7**0.5 / 4) ** 2, (7**0.5 / 4 - 0.25) ** 2])
    assert answer("topk:2", 1.0, 2.0, 1.5) == pytest.approx([0.0, 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))])
    assert answer("topk:1", 1.0, 2.0, 1.5) == [0.0, 1.0, 0.0]
    assert answer("relu", -1.0, 0.0, 2.0) == [0.0, 0.0, 2.0]
    assert answer("relu2", -1.0, 0.0, 3.0) == [0.0, 0.0, 9.0]
    assert answer("leaky_relu", -1.0, 0.0, 2.0) == pytest.approx([-0.01, 0.0, 2.0])
    assert answer("gelu", -1.0, 0.0, 1.0) == pytest.approx(
        [-0.5 * math.erfc(0.5**0.5), 0.0, 1 - 0.5 * math.erfc(0.5**0.5)]
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", ["sparsemax", "entmax15", "entmax:1.3"])
def test_half_precision_rounds_the_exact_answer(weights: str, dtype: torch.dtype):
    scores = (4 * normal(5, 33)).to(dtype)
    assert_close(
        weights_of(weights)(scores, None).double(),
        weights_of(weights)(scores.double(), None),
        rtol=torch.finfo(dtype).eps,
        atol=1e-4,
    )


def test_topk_is_softmax_when_it_keeps_all_keys():
    scores = normal(3, 5)
    assert_close(weights_of("topk:99")(scores, None), scores.softmax(-1))


def test_entmax_moves_from_softmax_to_sparsemax():
    scores = normal(4, 6)
    assert_close(weights_of("entmax:1.0001")(scores, None), scores.softmax(-1), rtol=0, atol=1e-3)
    assert_close(weights_of("entmax:2")(scores, None), weights_of("sparsemax")(scores, None))
    assert_close(weights_of("entmax:1.5")(scores, None), weights_of("entmax15")(scores, None))


@settings(deadline=None, max_examples=15)
@given(keys=st.integers(2, 11), seed=st.integers(0, 99), offset=st.sampled_from([0.0, 500.0, -500.0]))
@pytest.mark.parametrize("weights", WEIGHTS)
def test_forbidden_keys_are_as_if_absent(weights: str, keys: int, seed: int, offset: float):
    """Also in the gradient, and however large the forbidden scores are."""
    allowed = normal(keys, seed=seed) > 0
    scores = normal(3, keys, seed=seed + 1)
    scores[:, ~allowed] += offset
    assert_forbidden_keys_are_absent(weights, scores, allowed)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("weights", DISTRIBUTIONS)
def test_allowed_scores_may_be_the_lowest_finite_number(weights: str, dtype: torch.dtype):
    """A float mask may hold it for all keys that another limit leaves: their weights still sum to one."""
    scores = torch.full((1, 8), torch.finfo(dtype).min, dtype=dtype)
    allowed = torch.arange(8) >= 5
    wanted = torch.full((1, 3), 1 / 3, dtype=dtype)
    assert_close(weights_of(weights)(scores, allowed)[:, 5:], wanted, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", ["sparsemax", "entmax15", "entmax:1.3", "entmax:2.5"])
def test_second_derivatives_of_entmax(weights: str, masked: bool):
    """By finite differences, and by two calls of grad from a constant slope, whose curvature is all in p."""
    allowed = torch.tensor([True, True, False, True, True, True]) if masked else None
    scores = (3 * normal(3, 6, seed=5)).requires_grad_()
    away_from_kinks(scores, weights, allowed)
    assert (weights_of(weights)(scores, allowed) == 0).any()

    def call(scores: Tensor) -> Tensor:
        return weights_of(weights)(scores, allowed)

    assert gradgradcheck(call, scores, eps=STEP)
    (slope,) = torch.autograd.grad(call(scores)[:, 0].sum(), scores, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), scores, allow_unused=True)
    assert curvature is not None
    assert curvature.any() == (weights != "sparsemax")  # sparsemax is linear between its kinks


def sigmoid_with_a_wrong_mask(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """A forbidden score becomes 0, as the rectifiers that are zero at zero have it, and so weighs 1/2."""
    return torch.sigmoid(scores if allowed is None else scores.masked_fill(~allowed, 0.0))


@pytest.mark.parametrize(
    ("function", "complaint"),
    [(sigmoid_with_a_wrong_mask, "a forbidden key a weight"), (rectifier(zero_at_zero=False)(torch.sigmoid), None)],
    ids=["wrong", "right"],
)
def test_a_new_kind_is_held_to_the_properties(function, complaint, monkeypatch: pytest.MonkeyPatch):
    """A kind that the library lists is under test without being named, and one with a wrong mask fails."""
    monkeypatch.setitem(FUNCTIONS, "sigmoid", function)
    monkeypatch.setattr(kinds, "RECTIFIERS", (*kinds.RECTIFIERS, "sigmoid"))
    monkeypatch.setattr(kinds, "WEIGHTS", (*kinds.WEIGHTS, "sigmoid"))
    monkeypatch.setitem(kinds.PRESETS, "rela-g-sigmoid", kinds.Kind("sigmoid", "gated-rms"))
    assert "sigmoid" in every_weights()
    assert {"sigmoid", "rela-g-sigmoid"} <= {*every_kind()}
    scores, allowed = normal(3, 5), torch.tensor([True, False, True, True, False])
    if complaint is None:
        assert_forbidden_keys_are_absent("sigmoid", scores, allowed)
    else:
        with pytest.raises(AssertionError, match=complaint):
            assert_forbidden_keys_are_absent("sigmoid", scores, allowed)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_infinite_scores_of_forbidden_keys_reach_nothing(weights: str):
    """A product of two large float16 numbers is inf; a mask over it must not let inf · 0 through."""
    scores = normal(2, 5)
    scores[:, 2], scores[:, 3] = float("inf"), float("-inf")
    scores.requires_grad_()
    allowed = torch.tensor([True, True, False, False, True])
    p = weights_of(weights)(scores, allowed)
    (p * normal(2, 5, seed=1)).sum().backward()
    assert p.isfinite().all()
    assert scores.grad.isfinite().all()
    assert not scores.grad[:, 2:4].any()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("weights", [*FUNCTIONS, "entmax:1.3", "topk:2"])
def test_scores_that_are_no_numbers_spoil_their_own_row_and_say_so(weights: str, value: float):
    scores = normal(1, 1, 3, 4)
    scores[0, 0, 1, 2] = value
    found = weights_of(weights)(scores, None)
    saturated = weights in RECTIFIERS and found[0, 0, 1, 2] == 1  # a sigmoid of infinity is a number, and the right one
    assert saturated or not found[0, 0, 1].isfinite().all()
    whole = weights_of(weights)(scores[..., [0, 2], :], None)
    assert_close(found[..., [0, 2], :], whole)
    assert whole.isfinite().all()


@pytest.mark.parametrize("weights", RECTIFYING)
def test_a_high_threshold_leaves_nothing(weights: str):
    q, k, v = (normal(2, 3, 5, 4, seed=seed) for seed in range(3))
    assert rela.attention_weights(q, k, kind=weights, threshold=-1.0).any()
    assert not rela.attention_weights(q, k, kind=weights, threshold=1e6).any()
    assert not rela.attend(q, k, v, kind=weights, threshold=1e6).any()


def test_a_high_threshold_leaves_the_module_its_output_bias():
    module = attention("rela-g", threshold=1e6)
    x = normal(2, 5, 12)
    assert_close(module(x, x, x)[0], module.out_proj.bias.expand(2, 5, 12), rtol=0, atol=0)


def test_a_low_threshold_makes_relu_a_linear_map():
    """relu(s - θ) = s - θ once θ lies below every score."""
    q, k, v = (normal(2, 3, 5, 4, seed=seed) for seed in range(3))
    low = -1e3
    scores = q @ k.mT / 2
    assert scores.min() > low
    assert_close(rela.attend(q, k, v, kind="relu", threshold=low), (scores - low) @ v, rtol=1e-12, atol=1e-10)
    twice = rela.attend(2 * q, k, v, kind="relu", threshold=low) - rela.attend(q, k, v, kind="relu", threshold=low)
    assert_close(twice, scores @ v, rtol=1e-8, atol=1e-8)


def test_one_threshold_a_head():
    q, k, v = (normal(2, 3, 5, 4, seed=seed) for seed in range(3))
    theta = torch.tensor([-0.5, 0.0, 0.7], dtype=torch.float64)
    together = rela.attend(q, k, v, kind="relu", threshold=theta)
    for h in range(3):
        one = slice(h, h + 1)
        alone = rela.attend(q[:, one], k[:, one], v[:, one], kind="relu", threshold=theta[h].item())
        assert_close(together[:, one], alone)


@pytest.mark.parametrize("weights", RECTIFIERS)
def test_a_threshold_is_subtracted_from_the_scores(weights: str):
    q, k = normal(1, 2, 5, 4), normal(1, 2, 6, 4, seed=1)
    expected = weights_of(weights)(q @ k.mT / 2 - 0.3, None)
    assert_close(rela.attention_weights(q, k, kind=weights, threshold=0.3), expected)


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


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # PyTorch's own, in forward mode
@pytest.mark.parametrize("weights", ["sparsemax", "entmax15", "entmax:1.3"])
def test_transforms_of_functions_with_entmax(weights: str):
    """`vmap`, gradients of each sample, second derivatives in reverse mode; no wrong ones in forward mode."""
    scores, probe = normal(3, 4, 5), normal(5)

    def loss(scores: Tensor) -> Tensor:
        return (weights_of(weights)(scores, None) ** 2 * probe).sum()

    whole = scores.clone().requires_grad_()
    p = weights_of(weights)(whole, None)
    assert_close(torch.vmap(lambda x: weights_of(weights)(x, None), 1, 1)(scores), p)
    (slope,) = torch.autograd.grad(loss(whole), whole)
    assert_close(torch.vmap(torch.func.grad(loss))(scores), slope)
    wanted = torch.autograd.functional.hessian(loss, scores[0])
    assert_close(torch.func.jacrev(torch.func.jacrev(loss))(scores[0]), wanted)
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jacfwd(loss)(scores[0])
