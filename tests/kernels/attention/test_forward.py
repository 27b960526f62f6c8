"""The fused attention is the plain equation: every option, odd sizes, output and all gradients."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention.functional import relu_attention
from tests.kernels.exactness import ACTIVATIONS, DEVICE, assert_as_exact_as, draw, reference, seen_by

SCALE = 0.3
HALF = torch.float16


def assert_right(q, k, v, threshold=None, *, activation="relu", deterministic=False, **visibility):
    """The kernel against the plain equation, whatever limits what a query sees."""
    inputs = [q, k, v] if threshold is None else [q, k, v, threshold]

    def fused(q, k, v, threshold=None):
        options = {"activation": activation, "deterministic": deterministic, **visibility}
        return relu_attention(q, k, v, threshold=threshold, scale=SCALE, **options)

    def plain(q, k, v, threshold=None):
        seen = seen_by(q, k, **visibility)
        return reference(q, k, v, threshold, scale=SCALE, activation=activation, seen=seen)

    assert_as_exact_as(fused, plain, *inputs)


def qkv(B=2, H=2, T=63, S=63, D=24, Hk=None, dtype=torch.float32):
    Hk = Hk or H
    shapes = (B, H, T, D), (B, Hk, S, D), (B, Hk, S, D)
    return tuple(draw(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))


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


def test_views_of_one_projection_are_read_in_place():
    projected = draw(2, 33, 3, 4, 20, seed=1)  # [B, T, 3, H, D]
    q, k, v = (x.transpose(1, 2) for x in projected.unbind(2))
    out = relu_attention(q, k, v, scale=SCALE, causal=True)
    apart = relu_attention(*(x.contiguous() for x in (q, k, v)), scale=SCALE, causal=True)
    assert torch.equal(out, apart)
    assert out.transpose(1, 2).is_contiguous()  # so that merging the heads is a view
    assert_right(q, k, v, causal=True)


def test_a_last_dimension_that_is_not_contiguous_is_accepted():
    q, k, v = (draw(1, 2, 24, 33, seed=seed).mT for seed in range(3))
    assert_right(q, k, v)


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


def test_the_operators_keep_their_contract():
    q, k, v = (x.requires_grad_() for x in qkv(H=4, Hk=2, T=20, S=24))
    threshold = torch.zeros(4, device=DEVICE, requires_grad=True)
    lengths = torch.tensor([24, 10], device=DEVICE)
    seed = torch.tensor(3, device=DEVICE)
    mask = torch.ones(2, 1, 20, 24, dtype=torch.bool, device=DEVICE)
    operators = torch.ops.rela
    tail = (SCALE, "relu", True)
    torch.library.opcheck(
        operators.relu_attention.default,
        (q, k, v, threshold, lengths, mask, None, None, 20, 24, seed, *tail, 0.1, True),
    )
    torch.library.opcheck(operators.relu_attention_statistics.default, (q, k, v, threshold, lengths, mask, *tail, True))
    q, k, v, threshold = (x.detach() for x in (q, k, v, threshold))
    torch.library.opcheck(
        operators.relu_attention_backward.default,
        (q, q, k, v, threshold, lengths, mask, None, None, 20, 24, seed, *tail, 0.1, True),
    )
    torch.library.opcheck(operators.relu_attention_decode.default, (q, k, v, threshold, lengths, SCALE, "relu"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "gelu"}, f"activation must be one of {', '.join(ACTIVATIONS)}; got 'gelu'"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"threshold": torch.zeros(3)}, "threshold must be one number for each of 2 heads"),
        ({"key_lengths": torch.zeros(2)}, "key_lengths must be 2 integers"),
        ({"mask": torch.ones(2, 2, 9, 5, dtype=torch.bool)}, r"broadcast to \[2, 2, 5, 5\]"),
        ({"mask": torch.ones(1, 1, 5, 5)}, "mask must be bool"),
    ],
)
def test_bad_options_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        relu_attention(*qkv(T=5, S=5), **{"scale": 1.0, **change})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)), "the 2 heads of k must divide the 3 heads of q"),
        (((2, 2, 5, 8), (2, 2, 5, 9), (2, 2, 5, 9)), "share a head size"),
        (((2, 2, 5, 300), (2, 2, 5, 300), (2, 2, 5, 300)), "head size of 1 … 256"),
        (((2, 2, 5, 8), (2, 2, 5, 8), (2, 2, 6, 8)), "k and v must have the same shape"),
        (((2, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)), "same batch size"),
        (((2, 5, 8), (2, 5, 8), (2, 5, 8)), "4 dimensions"),
    ],
)
def test_bad_shapes_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        relu_attention(*(torch.zeros(shape) for shape in shapes), scale=1.0)


def test_mixed_types_are_named():
    q, k, v = qkv(T=5, S=5)
    with pytest.raises(TypeError, match=r"got torch.float16, torch.float32"):
        relu_attention(q.half(), k, v, scale=1.0)
