"""The loss kernel gives the label-smoothed loss of a chunk of logits, and leaves its slope in their place."""

import pytest
import torch

pytest.importorskip("triton")

from rela.data.subwords import PAD
from rela.kernels.layers.cross_entropy import WORDS, smoothed_loss
from rela.training.linear_cross_entropy import linear_cross_entropy
from rela.training.loss import smoothed_cross_entropy
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw


def targets(rows, words):
    target = torch.randint(words, (rows,), generator=torch.Generator().manual_seed(4)).to(DEVICE)
    target[::5] = PAD
    return target


@pytest.mark.parametrize(("rows", "V"), [(63, 60), (8, 1000), (5, 2), (1, 300), (0, 7)])
@pytest.mark.parametrize("words", [WORDS, 64])  # all in one block, or in several
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_slope(rows, V, words, smoothing):
    logits, target = (3.0 * draw(rows, V, seed=1)).requires_grad_(), targets(rows, V)
    wanted = smoothed_cross_entropy(logits, target, smoothing)
    loss, nll, slope = smoothed_loss(logits.detach().clone(), target, smoothing, PAD, True, words)
    torch.testing.assert_close((loss, nll), wanted)
    torch.testing.assert_close(slope, torch.autograd.grad(wanted[0], logits)[0])


def test_the_slope_lies_where_the_logits_were():
    logits, target = draw(9, 50, seed=1), targets(9, 50)
    assert smoothed_loss(logits, target, 0.1, PAD, True)[2] is logits


def test_logits_stay_if_no_slope_is_wanted():
    logits, target = draw(9, 50, seed=1), targets(9, 50)
    before = logits.clone()
    loss, nll, slope = smoothed_loss(logits, target, 0.1, PAD, False)
    assert slope is None
    assert torch.equal(logits, before)
    torch.testing.assert_close((loss, nll), smoothed_cross_entropy(logits, target, 0.1))


def test_logits_in_half_precision():
    logits, target = (3.0 * draw(37, 90, seed=1)).half().requires_grad_(), targets(37, 90)
    wanted = smoothed_cross_entropy(logits, target, 0.1)
    loss, nll, slope = smoothed_loss(logits.detach().clone(), target, 0.1, PAD, True)
    torch.testing.assert_close((loss, nll), wanted)  # both add up the same numbers in float32
    assert slope.dtype == torch.float16
    # slopes are below one, and rounded once each to 11 bits
    torch.testing.assert_close(slope, torch.autograd.grad(wanted[0], logits)[0], rtol=0.0, atol=2**-11)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "V"), [(2000, 32000), (700, 50_001)])
def test_the_output_layer_with_its_loss_on_the_device(rows, V, dtype):
    hidden, weight, target = draw(rows, 256, dtype=dtype, seed=1), draw(V, 256, dtype=dtype, seed=2), targets(rows, V)
    assert_as_exact_as(
        lambda h, w: linear_cross_entropy(h, w, target, 0.1, 768)[0][None].to(h.dtype),
        lambda h, w: smoothed_cross_entropy(h @ w.mT, target, 0.1)[0][None].to(h.dtype),
        hidden,
        weight / 16.0,
    )


@pytest.mark.gpu
@pytest.mark.usefixtures("memory_as_it_is")
def test_under_autocast_on_the_device_the_weight_gets_a_gradient_of_its_own_type():
    hidden, weight, target = draw(100, 64, seed=1), draw(300, 64, seed=2).requires_grad_(), targets(100, 300)
    half = hidden.bfloat16().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        loss, _ = torch.compile(lambda h, w: linear_cross_entropy(h, w, target, 0.1, 32))(half, weight)
    d_half, d_weight = torch.autograd.grad(0.5 * loss, (half, weight))
    assert (d_half.dtype, d_weight.dtype) == (torch.bfloat16, torch.float32)
    exact = half.detach().double().requires_grad_()
    precise = weight.detach().bfloat16().double().requires_grad_()
    wanted = torch.autograd.grad(0.5 * smoothed_cross_entropy(exact @ precise.mT, target, 0.1)[0], (exact, precise))
    # logits of up to 30, rounded to 8 bits, move slopes by up to a sixteenth
    for got, true in zip((d_half, d_weight), wanted, strict=True):
        assert (got.double() - true).norm() <= 2**-4 * true.norm()
