"""Gradients of fused simplex attention where they are special: in empty rows, of nothing, repeated, twice."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import simplex_attention
from tests.kernels.attention.attention_cases import HALF, qkv
from tests.kernels.attention.simplex_cases import KINDS, SCALE
from tests.kernels.exactness import DEVICE, draw


@pytest.mark.parametrize("activation", KINDS)
def test_rows_that_see_nothing_give_zeros_and_zero_gradients(activation):
    q, k, v = (x.requires_grad_() for x in qkv(B=2, H=1, T=9, S=12, D=16))
    mask = torch.ones(2, 1, 9, 12, dtype=torch.bool, device=DEVICE)
    mask[0, :, 7] = False
    mask[1] = False
    out = simplex_attention(q, k, v, scale=0.1, activation=activation, mask=mask)
    dq, dk, dv = torch.autograd.grad(out, [q, k, v], draw(*out.shape, seed=9))
    for x in (out, dq):
        assert x[0, :, 7].abs().max() == 0
        assert x[0, :, 8].abs().max() > 0
    assert all(x[1].abs().max() == 0 for x in (out, dq, dk, dv))


@pytest.mark.parametrize(("B", "T", "S"), [(0, 5, 5), (2, 0, 5), (2, 5, 0)])
def test_nothing_to_do(B, T, S):
    q, k, v = (x.requires_grad_() for x in qkv(B=B, T=T, S=S))
    out = simplex_attention(q, k, v, scale=SCALE)
    gradients = torch.autograd.grad(out.sum(), [q, k, v])
    assert out.shape == q.shape
    assert all((x == 0).all() for x in (out, *gradients))


def test_gradients_can_be_repeated_bit_for_bit():
    q, k, v = (x.requires_grad_() for x in qkv(B=1, H=4, Hk=2, T=20, S=33, D=16, dtype=HALF))
    limits = {"key_lengths": torch.tensor([30], device=DEVICE), "dropout": 0.2, "seed": 5, "causal": True}

    def gradients():
        out = simplex_attention(q, k, v, scale=SCALE, activation="entmax15", **limits)
        return out, *torch.autograd.grad(out, [q, k, v], draw(*out.shape, dtype=HALF, seed=9))

    assert all(torch.equal(one, other) for one, other in zip(gradients(), gradients(), strict=True))


def test_a_gradient_that_is_one_number_everywhere():
    """Rows that sum to one do not change, so neither does the sum of a context of equal values: no gradient but dV's.

    The gradient of a sum has strides of zero.
    """
    q, k, v = (x.requires_grad_() for x in qkv(B=1, H=2, T=9, S=21, D=16))
    equal = torch.ones_like(v).requires_grad_()
    out = simplex_attention(q, k, equal, scale=SCALE, activation="entmax15")
    dq, dk, dv = torch.autograd.grad(out.sum(), (q, k, equal))
    eps = torch.finfo(torch.float32).eps
    for x, of in ((dq, k), (dk, q)):
        assert x.abs().max() <= 100 * eps * of.abs().max()
    torch.testing.assert_close(dv.sum((0, 2)), torch.full_like(dv[0, :, 0], 9.0))


def test_second_derivatives_are_an_error_and_not_zero():
    q, k, v = (x.requires_grad_() for x in qkv(B=1, H=1, T=5, S=5))
    (dq,) = torch.autograd.grad(simplex_attention(q, k, v, scale=SCALE).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()
