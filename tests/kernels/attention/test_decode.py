"""Decoding is the same attention for a few queries, however the keys are split."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention.decode import decode
from rela.kernels.attention.functional import relu_attention_decode
from rela.kernels.attention.problem import Problem
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw, reference, seen_by


def assert_exact(q, k, v, threshold=None, lengths=None, activation="relu"):
    """Within twice the error of the plain equation in the same precision."""
    got = relu_attention_decode(q, k, v, scale=0.3, activation=activation, threshold=threshold, key_lengths=lengths)
    options = {"scale": 0.3, "activation": activation, "seen": seen_by(q, k, key_lengths=lengths)}
    exact = reference(*(x.double() for x in (q, k, v)), None if threshold is None else threshold.double(), **options)
    error = (reference(q, k, v, threshold, **options).double() - exact).abs().max()
    assert got.dtype == q.dtype
    assert (got.double() - exact).abs().max() <= 2 * error + 1e-6


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("Hk", [1, 4])
def test_it_is_the_equation(activation, T, Hk):
    q, k, v = draw(2, 4, T, 24, seed=1), draw(2, Hk, 333, 24, seed=2), draw(2, Hk, 333, 24, seed=3)
    lengths = torch.tensor([333, 150], device=DEVICE)
    assert_exact(q, k, v, draw(4, seed=4), lengths, activation)


@pytest.mark.parametrize("D", [8, 60, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_head_sizes(D, dtype):
    assert_exact(*(draw(1, 2, rows, D, dtype=dtype, seed=rows) for rows in (1, 300, 300)))


@pytest.mark.parametrize("splits", [1, 2, 5, 1000])
def test_splits_add_up(splits):
    q, k, v = draw(1, 2, 1, 16, seed=1), draw(1, 2, 700, 16, seed=2), draw(1, 2, 700, 16, seed=3)
    problem = Problem(q, k, v, None, None, None, None, None, None, 0.25, "relu", False, 0.0)
    torch.testing.assert_close(decode(problem, splits), reference(q, k, v, scale=0.25))


def test_rows_of_v_without_weight_are_never_read():
    q, k, v = draw(1, 2, 1, 16, seed=1), draw(1, 2, 300, 16, seed=2), draw(1, 2, 300, 16, seed=3)
    scores = (q @ k.mT)[:, :, 0]
    wanted = relu_attention_decode(q, k, v, scale=0.25)
    poisoned = v.masked_fill((scores <= 0)[..., None], float("nan"))
    assert torch.equal(relu_attention_decode(q, k, poisoned, scale=0.25), wanted)


def test_nothing_within_the_length_gives_zeros():
    q, k, v = draw(2, 2, 1, 16, seed=1), draw(2, 2, 100, 16, seed=2), draw(2, 2, 100, 16, seed=3)
    out = relu_attention_decode(q, k, v, scale=0.25, key_lengths=torch.tensor([0, 100], device=DEVICE))
    assert out[0].abs().max() == 0
    assert out[1].abs().max() > 0
    assert (relu_attention_decode(q, k[:, :, :0], v[:, :, :0], scale=0.25) == 0).all()


def test_a_cache_with_room_to_spare_is_read_in_place():
    cache = draw(2, 50, 2, 16, seed=2)  # [B, S, H, D], 20 keys filled so far
    k = cache.transpose(1, 2)[:, :, :20]
    q = draw(2, 2, 1, 16, seed=1)
    assert torch.equal(
        relu_attention_decode(q, k, k, scale=0.25), relu_attention_decode(q, k.contiguous(), k.contiguous(), scale=0.25)
    )


LIMITS = {
    "causal": {"causal": True},
    "starts": {"key_starts": torch.tensor([0, 170])},
    "starts and lengths": {"key_starts": torch.tensor([3, 170]), "key_lengths": torch.tensor([333, 160])},
    "window": {"window": (40, None)},
    "all": {"causal": True, "key_starts": torch.tensor([300, 0]), "window": (100, None)},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("T", [1, 5])
def test_what_a_query_sees(limits, T):
    q, k, v = draw(2, 4, T, 24, seed=1), draw(2, 2, 333, 24, seed=2), draw(2, 2, 333, 24, seed=3)
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in LIMITS[limits].items()}
    seen = seen_by(q, k, **given)
    left, _ = given.pop("window", (None, None))
    got = relu_attention_decode(q, k, v, scale=0.3, left=left, **given)
    exact = reference(q.double(), k.double(), v.double(), scale=0.3, seen=seen)
    error = (reference(q, k, v, scale=0.3, seen=seen) - exact).abs().max()
    assert (got - exact).abs().max() <= 2 * error + 1e-6
