"""Row statistics agree with the weights they describe, and the output stays what it is without them."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention import activations
from rela.kernels.attention.functional import relu_attention, relu_attention_with_statistics
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw, seen_by, weights_of


def test_they_describe_the_weights():
    q, k, v = draw(2, 4, 63, 24, seed=1), draw(2, 2, 70, 24, seed=2), draw(2, 2, 70, 24, seed=3)
    threshold = torch.tensor([0.0, 1.0, 3.0, 100.0], device=DEVICE)
    lengths = torch.tensor([70, 33], device=DEVICE)
    mask = draw(2, 1, 63, 70, seed=4) > -1
    for activation in ACTIVATIONS:
        options = {"scale": 0.3, "activation": activation, "threshold": threshold}
        visibility = {"causal": True, "key_lengths": lengths, "mask": mask}
        out, nonzeros, argmax, largest = relu_attention_with_statistics(q, k, v, **options, **visibility)
        seen = seen_by(q, k, **visibility)
        weights = weights_of(q, k, **options, seen=seen)
        null = (weights == 0).all(-1)
        assert null.any() == activations.ACTIVATIONS[activation].rectifies
        assert torch.equal(out, relu_attention(q, k, v, **options, **visibility))
        assert torch.equal(nonzeros.long(), (weights != 0).sum(-1))
        top, where = weights.masked_fill(~seen, -torch.inf).max(-1)
        assert torch.equal(argmax.long(), where.masked_fill(null, -1))
        torch.testing.assert_close(largest, top.masked_fill(null, 0.0))
        assert (nonzeros.dtype, argmax.dtype, largest.dtype) == (torch.int32, torch.int32, torch.float32)


def test_the_first_of_equal_weights_is_the_largest():
    q = torch.ones(1, 1, 3, 16, device=DEVICE)
    k = torch.ones(1, 1, 70, 16, device=DEVICE)
    _, nonzeros, argmax, largest = relu_attention_with_statistics(q, k, k, scale=1.0)
    assert nonzeros.tolist() == [[[70] * 3]]
    assert argmax.tolist() == [[[0] * 3]]
    assert largest.tolist() == [[[16.0] * 3]]


def test_the_output_is_differentiable():
    q, k, v = (draw(1, 2, 20, 16, seed=seed).requires_grad_() for seed in range(3))
    out, *statistics = relu_attention_with_statistics(q, k, v, scale=0.25, deterministic=True)
    plain = relu_attention(q, k, v, scale=0.25, deterministic=True)
    gradients = torch.autograd.grad(out.sum(), [q, k, v])
    assert all(map(torch.equal, gradients, torch.autograd.grad(plain.sum(), [q, k, v])))
    assert not any(x.requires_grad for x in statistics)
