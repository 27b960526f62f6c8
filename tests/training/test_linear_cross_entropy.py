"""The output layer and its loss in one operation, against the same in two."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rela.training.linear_cross_entropy import linear_cross_entropy
from rela.training.loss import smoothed_cross_entropy


def inputs(rows: int, width: int, words: int, seed: int, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(words, width, generator=generator, dtype=dtype).requires_grad_()
    target = torch.randint(0, words, (rows,), generator=generator)  # 0 is PAD, so some rows do not count
    return hidden, weight, target


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(0, 23),
    words=st.integers(2, 19),
    chunk=st.integers(1, 30),
    seed=st.integers(0, 99),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_equals_the_loss_of_the_logits(rows: int, words: int, chunk: int, seed: int, smoothing: float):
    hidden, weight, target = inputs(rows, 7, words, seed)
    loss, nll = linear_cross_entropy(hidden, weight, target, smoothing, chunk)
    wanted, wanted_nll = smoothed_cross_entropy(hidden @ weight.mT, target, smoothing)
    torch.testing.assert_close((loss, nll), (wanted, wanted_nll))
    if rows:
        slopes = torch.autograd.grad(3.0 * loss, (hidden, weight))
        torch.testing.assert_close(slopes, torch.autograd.grad(3.0 * wanted, (hidden, weight)))


def test_the_slope_is_the_slope():
    hidden, weight, target = inputs(6, 4, 9, 1)
    assert torch.autograd.gradcheck(lambda h, w: linear_cross_entropy(h, w, target, 0.1, 4)[0], (hidden, weight))


def test_without_gradients_none_are_prepared():
    hidden, weight, target = inputs(6, 4, 9, 2)
    with torch.no_grad():
        loss, nll = linear_cross_entropy(hidden, weight, target, 0.1)
    assert not loss.requires_grad
    assert not nll.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_parameters_get_gradients_of_their_own_type(dtype: torch.dtype):
    hidden, weight, target = inputs(40, 16, 50, 3, torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        half = torch.nn.functional.linear(hidden, torch.eye(16))  # in the type that autocast gives hidden states
        loss, _ = linear_cross_entropy(half, weight, target, 0.1, 16)
    loss.backward()
    assert half.dtype == dtype
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    exact, _ = smoothed_cross_entropy((hidden @ weight.mT).detach(), target, 0.1)
    assert abs(loss.item() - exact.item()) <= 40 * 16 * torch.finfo(dtype).eps * abs(exact.item())


def test_in_half_precision_the_slope_of_the_loss_is_not_rounded():
    hidden, weight, target = (x.detach() for x in inputs(40, 16, 50, 5, torch.float32))
    half, third = hidden.bfloat16().requires_grad_(), torch.tensor(1.0 / 3.0)
    loss, _ = linear_cross_entropy(half, weight.bfloat16(), target, 0.1, 16)
    whole, scaled = (torch.autograd.grad(loss, half, slope, retain_graph=True)[0] for slope in (torch.ones(()), third))
    assert torch.equal(scaled, (whole.float() * third).bfloat16())


def test_compiles_without_a_graph_break():
    hidden, weight, target = inputs(37, 8, 11, 4)
    compiled = torch.compile(
        lambda h, w, t: linear_cross_entropy(h, w, t, 0.1, 16), fullgraph=True, backend="aot_eager"
    )
    loss, nll = compiled(hidden, weight, target)
    torch.testing.assert_close((loss, nll), linear_cross_entropy(hidden, weight, target, 0.1))
    slopes = torch.autograd.grad(loss, (hidden, weight))
    torch.testing.assert_close(
        slopes, torch.autograd.grad(linear_cross_entropy(hidden, weight, target, 0.1)[0], (hidden, weight))
    )
