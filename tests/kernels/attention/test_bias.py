"""A float mask is added to the scores, whatever its shape repeats, and has the gradient of the equation."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention
from tests.kernels.attention.attention_cases import SCALE, qkv
from tests.kernels.exactness import ACTIVATIONS, DEVICE, assert_as_exact_as, draw, seen_by

BIASES = {
    "all": (2, 4, 20, 24),
    "heads": (1, 4, 20, 24),
    "keys": (2, 1, 1, 24),
    "queries": (1, 1, 20, 1),
    "numbers": (2, 4, 1, 1),
}


@pytest.mark.parametrize("shape", BIASES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_float_mask_is_added_to_the_scores_and_has_a_gradient(activation, shape):
    (q, k, v), bias = qkv(T=20, S=24, H=4, Hk=2), draw(*BIASES[shape], seed=6)
    hidden = draw(*BIASES[shape], seed=8) > 1.0
    lengths = torch.tensor([24, 13], device=DEVICE)

    def fused(q, k, v, bias):
        mask = bias.masked_fill(hidden, -torch.inf)
        return relu_attention(q, k, v, scale=SCALE, activation=activation, mask=mask, causal=True, key_lengths=lengths)

    def plain(q, k, v, bias):
        scores = q @ k.repeat_interleave(2, 1).mT * SCALE + bias
        seen = seen_by(q, k, causal=True, key_lengths=lengths) & ~hidden
        return ACTIVATIONS[activation](scores, seen) @ v.repeat_interleave(2, 1)

    assert_as_exact_as(fused, plain, q, k, v, bias)


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, -torch.inf])
def test_the_lowest_number_of_a_float_mask_overflows_nothing(lowest):
    q, k, v = qkv(T=5, S=5)
    mask = torch.zeros(1, 1, 5, 5, device=DEVICE).masked_fill(torch.eye(5, device=DEVICE, dtype=torch.bool), lowest)
    for activation in ACTIVATIONS:
        out = relu_attention(q, k, v, scale=SCALE, activation=activation, mask=mask)
        assert out.isfinite().all() or lowest != -torch.inf
    rectified = relu_attention(q, k, v, scale=SCALE, mask=mask)
    torch.testing.assert_close(rectified, relu_attention(q, k, v, scale=SCALE, mask=mask == 0))
