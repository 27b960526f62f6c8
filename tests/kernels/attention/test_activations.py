"""A record is true of its activation, and a hidden key has neither weight nor gradient."""

import pytest
import torch

pytest.importorskip("triton")

from torch import Tensor

from rela.kernels.attention import activations
from rela.kernels.attention.functional import relu_attention, relu_attention_decode, relu_attention_packed
from rela.packing import Packing
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw, seen_by

T, S = 35, 40  # two tiles of 32 each way, the second one ragged


def value_and_slope(activation: str, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The equation of the reference, and its derivative by autograd."""
    scores = scores.detach().requires_grad_()
    weights = ACTIVATIONS[activation](scores)
    return weights.detach(), torch.autograd.grad(weights.sum(), scores)[0]


def assert_only_seen(activation: str, q: Tensor, out: Tensor, dq: Tensor, d_out: Tensor, seen: Tensor) -> None:
    """Scores q that are seen have the activation's weight and gradient, the others neither."""
    assert (out[~seen] == 0).all()
    assert (dq[~seen] == 0).all()
    weights, slopes = value_and_slope(activation, q)
    torch.testing.assert_close(out[seen], weights[seen])
    torch.testing.assert_close(dq[seen], (slopes * d_out)[seen])


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
def test_a_record_is_true(activation: str):
    record = activations.ACTIVATIONS[activation]
    scores = torch.linspace(-5, 5, 101, dtype=torch.float64)
    weights, slopes = value_and_slope(activation, scores)
    if record.degree is not None:
        for factor in (0.3, 2.0):
            wanted = factor**record.degree * weights
            torch.testing.assert_close(value_and_slope(activation, factor * scores)[0], wanted)
    if record.rectifies:
        assert (weights[scores <= 0] == 0).all()
        assert (slopes[scores <= 0] == 0).all()


LIMITS = {
    "causal": {"causal": True},
    "lengths": {"key_lengths": torch.tensor([33], device=DEVICE)},
    "mask": {"mask": draw(1, 1, T, S, seed=4) > 0},
}


@pytest.mark.parametrize("deterministic", [False, True], ids=["one pass", "two passes"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_hidden_key_has_neither_weight_nor_gradient(activation: str, limit: str, deterministic: bool):
    """Keys and values are the identity, so q holds the scores, the output the weights and dQ the scores' gradients."""
    q = draw(1, 1, T, S, seed=1).requires_grad_()
    identity = torch.eye(S, device=DEVICE)[None, None]
    options = {"scale": 1.0, "activation": activation, "deterministic": deterministic}
    out = relu_attention(q, identity, identity, **options, **LIMITS[limit])
    d_out = draw(1, 1, T, S, seed=2)
    (dq,) = torch.autograd.grad(out, q, d_out)
    seen = seen_by(q, identity, **LIMITS[limit])
    assert_only_seen(activation, q, out, dq, d_out, seen)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_another_packed_sequence_has_neither_weight_nor_gradient(activation: str):
    q = draw(T, 1, S, seed=1).requires_grad_()
    identity = torch.eye(S, device=DEVICE)[:, None]
    cu_q, cu_k = (torch.tensor(cu, dtype=torch.int32, device=DEVICE) for cu in ([0, 9, 33], [0, 20, 38]))
    packings = Packing(cu_q, 24), Packing(cu_k, 20)
    out = relu_attention_packed(q, identity, identity, *packings, scale=1.0, activation=activation)
    d_out = draw(T, 1, S, seed=2)
    (dq,) = torch.autograd.grad(out, q, d_out)
    seen = torch.zeros(T, 1, S, dtype=torch.bool, device=DEVICE)
    seen[:9, :, :20] = seen[9:33, :, 20:38] = True
    assert_only_seen(activation, q, out, dq, d_out, seen)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_key_beyond_the_length_has_no_weight_when_decoding(activation: str):
    q, identity = draw(1, 1, 2, S, seed=1), torch.eye(S, device=DEVICE)[None, None]
    lengths = torch.tensor([33], device=DEVICE)
    out = relu_attention_decode(q, identity, identity, scale=1.0, activation=activation, key_lengths=lengths)
    assert (out[..., 33:] == 0).all()
    torch.testing.assert_close(out[..., :33], value_and_slope(activation, q)[0][..., :33])
