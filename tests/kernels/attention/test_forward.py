"""The fused attention is the plain equation: every option, odd sizes, output and all gradients."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention import activations
from rela.kernels.attention.functional import relu_attention, relu_attention_with_statistics
from tests.kernels.attention.attention_cases import HALF, SCALE, assert_right, qkv
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw, reference, seen_by, weights_of


@pytest.mark.parametrize("deterministic", [False, True], ids=["one pass", "two passes"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("T", "S", "D"), [(63, 63, 60), (40, 70, 16), (70, 40, 16), (1, 33, 32), (33, 1, 8), (5, 5, 130)]
)
def test_odd_sizes(T, S, D, causal, deterministic):
    assert_right(*qkv(T=T, S=S, D=D), causal=causal, deterministic=deterministic)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_activations_with_a_threshold_for_each_head(activation, dtype):
    q, k, v = qkv(T=40, S=35, dtype=dtype)
    assert_right(q, k, v, draw(2, dtype=dtype, seed=5), activation=activation, causal=True)


@pytest.mark.parametrize("deterministic", [False, True], ids=["one pass", "two passes"])
def test_half_precision_in_large_tiles(deterministic):
    q, k, v = qkv(B=1, T=150, S=140, D=32, dtype=HALF)
    assert_right(q, k, v, causal=True, deterministic=deterministic)


@pytest.mark.parametrize("Hk", [1, 2])
@pytest.mark.parametrize("deterministic", [False, True], ids=["one pass", "two passes"])
def test_grouped_queries(Hk, deterministic):
    assert_right(*qkv(H=4, Hk=Hk, T=34, S=37), draw(4, seed=5) * 0.3, causal=True, deterministic=deterministic)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_key_lengths(causal, activation, kind):
    q, k, v = qkv(B=4, T=35, S=40)
    lengths = torch.tensor([40, 17, 1, 0], dtype=kind, device=DEVICE)
    assert_right(q, k, v, draw(2, seed=5) * 0.3, causal=causal, activation=activation, key_lengths=lengths)


@pytest.mark.parametrize("shape", [(2, 2, 35, 40), (1, 2, 1, 40), (2, 1, 35, 1), (1, 1, 35, 40), (2, 1, 1, 40)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_boolean_masks_broadcast(shape, activation):
    mask = draw(*shape, seed=7) > 0
    assert_right(*qkv(T=35, S=40), draw(2, seed=5) * 0.3, mask=mask, activation=activation, causal=True)


def test_a_mask_may_be_a_transposed_view():
    mask = (draw(2, 1, 40, 35, seed=7) > 0).mT
    assert_right(*qkv(T=35, S=40), mask=mask)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_masked_tile_is_skipped_rightly(activation):
    """Whole tiles hidden by a mask, and whole tiles without a positive score: the branch around V is taken."""
    q, k, v = qkv(T=70, S=70)
    mask = torch.ones(1, 1, 70, 70, dtype=torch.bool, device=DEVICE)
    mask[..., :33, 31:] = False
    assert_right(q, k, v, torch.full((2,), 3.0, device=DEVICE), mask=mask, activation=activation)


def test_keys_beyond_the_length_are_never_read():
    q, k, v = qkv(S=50)
    lengths = torch.tensor([33, 20], device=DEVICE)
    clean = relu_attention(q, k, v, scale=SCALE, key_lengths=lengths)
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = float("nan")
    assert torch.equal(relu_attention(q, k, v, scale=SCALE, key_lengths=lengths), clean)


def test_nan_is_not_hidden():
    q, k, v = qkv()
    q[0, 0, 3, 0] = float("nan")
    out = relu_attention(q, k, v, scale=SCALE)
    assert out[0, 0, 3].isnan().all()
    assert not out[0, 0, 4].isnan().any()


@pytest.mark.parametrize("scale", [0.0, -0.5, 1.0, 1e-4])
def test_any_scale(scale):
    q, k, v = qkv(T=20, S=20)
    threshold = torch.tensor([-0.2, 0.1], device=DEVICE)
    got = relu_attention(q, k, v, scale=scale, threshold=threshold)
    torch.testing.assert_close(got, reference(q, k, v, threshold, scale=scale))


def test_half_precision_scores_may_be_huge_before_they_are_scaled():
    q, k = (torch.full((1, 1, 16, 64), 50.0, dtype=HALF, device=DEVICE) for _ in range(2))
    v = torch.eye(16, 64, dtype=HALF, device=DEVICE)[None, None]
    out = relu_attention(q, k, v, scale=1e-3)  # 64 · 50 · 50 = 160000 does not fit in float16
    torch.testing.assert_close(out[..., :16], torch.full((1, 1, 16, 16), 160.0, dtype=HALF, device=DEVICE))


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
