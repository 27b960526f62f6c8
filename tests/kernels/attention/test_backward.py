"""Gradients of the fused attention where they are special: at a score of zero, in null rows, repeated."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention
from tests.kernels.attention.attention_cases import HALF, SCALE, qkv
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rows_that_see_nothing_give_zeros_and_zero_gradients(activation):
    q, k, v = (x.requires_grad_() for x in qkv(T=40, S=40))
    threshold = torch.zeros(2, device=DEVICE, requires_grad=True)
    mask = torch.ones(2, 1, 40, 40, dtype=torch.bool, device=DEVICE)
    mask[0, :, 7] = False
    mask[1] = False
    out = relu_attention(q, k, v, scale=SCALE, activation=activation, threshold=threshold, mask=mask)
    dq, dk, dv, d_threshold = torch.autograd.grad(out, [q, k, v, threshold], torch.ones_like(out))
    for x in (out, dq):
        assert x[0, :, 7].abs().max() == 0
        assert x[0, :, 8].abs().max() > 0
    assert all(x[1].abs().max() == 0 for x in (out, dq, dk, dv))
    assert d_threshold.isfinite().all()


def test_rows_that_look_at_nothing_are_null():
    """All scores negative: relu gives zero output, zero gradient, in every precision."""
    for dtype in (torch.float32, HALF):
        q, v = (draw(1, 2, 20, 16, dtype=dtype, seed=seed).abs().requires_grad_() for seed in (1, 2))
        k = -draw(1, 2, 20, 16, dtype=dtype, seed=3).abs()
        out = relu_attention(q, k, v, scale=SCALE)
        assert all(x.abs().max() == 0 for x in (out, *torch.autograd.grad(out.sum(), [q, v])))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_the_slope_at_a_score_of_zero_is_that_of_pytorch(activation, deterministic):
    zero = torch.zeros((), requires_grad=True)
    (slope,) = torch.autograd.grad(ACTIVATIONS[activation](zero), zero)
    q = torch.zeros(1, 1, 20, 16, device=DEVICE, requires_grad=True)
    k, v = draw(1, 1, 20, 16, seed=1), draw(1, 1, 20, 16, seed=2)
    out = relu_attention(q, k, v, scale=1.0, activation=activation, deterministic=deterministic)
    (dq,) = torch.autograd.grad(out, q, torch.ones_like(out))
    expected = slope.to(DEVICE) * v.sum(-1, keepdim=True).mT.expand(1, 1, 20, 20) @ k
    torch.testing.assert_close(dq, expected)


@pytest.mark.parametrize(("B", "T", "S"), [(0, 5, 5), (2, 0, 5), (2, 5, 0)])
def test_nothing_to_do(B, T, S):
    q, k, v = (x.requires_grad_() for x in qkv(B=B, T=T, S=S))
    out = relu_attention(q, k, v, scale=SCALE)
    gradients = torch.autograd.grad(out.sum(), [q, k, v])
    assert out.shape == q.shape
    assert all((x == 0).all() for x in (out, *gradients))


def test_gradients_can_be_repeated_bit_for_bit():
    q, k, v = (x.requires_grad_() for x in qkv(H=4, Hk=2, dtype=HALF))
    threshold = draw(4, seed=5).requires_grad_()

    def gradients():
        out = relu_attention(q, k, v, scale=SCALE, threshold=threshold, deterministic=True)
        return torch.autograd.grad(out.float().square().sum(), [q, k, v, threshold])

    assert all(map(torch.equal, gradients(), gradients()))
