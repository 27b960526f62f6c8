"""Dropout on the weights: the right share, unbiased, and the same mask forward, backward and in any tiling."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention.functional import relu_attention, relu_attention_packed
from rela.packing import Packing
from tests.kernels.exactness import ACTIVATIONS, DEVICE, assert_as_exact_as, draw, reference

RATE = 0.3


def mask_of(B: int, H: int, T: int, S: int, seed: int | torch.Tensor, rate: float = RATE) -> torch.Tensor:
    """The factors dropout multiplies the weights by, [B, H, T, S]: ones as weights, the identity as values."""
    q = torch.ones(B, H, T, S, device=DEVICE)
    k = torch.ones(B, H, S, S, device=DEVICE)
    v = torch.eye(S, device=DEVICE).expand(B, H, S, S)
    return relu_attention(q, k, v, scale=1 / S, dropout=rate, seed=seed)


def test_the_mask_is_zero_or_the_inverse_of_the_rest():
    mask = mask_of(2, 2, 50, 48, seed=1)
    dropped = mask == 0
    torch.testing.assert_close(mask[~dropped], torch.full_like(mask[~dropped], 1 / (1 - RATE)))
    # binomial: 9600 draws, five standard deviations
    assert abs(dropped.float().mean() - RATE) < 5 * (RATE * (1 - RATE) / mask.numel()) ** 0.5


def test_neither_rows_nor_columns_nor_heads_repeat():
    dropped = (mask_of(2, 2, 48, 48, seed=1) == 0).float()
    slices = [dropped[0, 0], dropped[0, 1], dropped[1, 0], dropped[1, 1], dropped[0, 0].mT]
    wanted = RATE**2 + (1 - RATE) ** 2  # how often two independent masks agree
    for i, one in enumerate(slices):
        for other in slices[:i]:
            assert abs((one == other).float().mean() - wanted) < 5 * (wanted * (1 - wanted) / one.numel()) ** 0.5


def test_neighbours_are_independent():
    centred = (mask_of(2, 2, 64, 64, seed=2) == 0).float() - RATE
    for step in [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (0, 16), (16, 0), (0, 32), (32, 0)]:
        correlation = (centred * centred.roll(step, (2, 3))).mean() / (RATE * (1 - RATE))
        assert abs(correlation) < 5 / centred.numel() ** 0.5, step


def test_a_seed_gives_one_mask_whether_number_or_tensor():
    mask = mask_of(1, 2, 20, 16, seed=5)
    assert torch.equal(mask, mask_of(1, 2, 20, 16, seed=torch.tensor(5, device=DEVICE)))
    assert not torch.equal(mask, mask_of(1, 2, 20, 16, seed=6))
    assert not torch.equal(mask, mask_of(1, 2, 20, 16, seed=5 + 2**32))


def test_the_mask_of_a_query_and_key_does_not_depend_on_the_rest():
    assert torch.equal(mask_of(2, 2, 70, 48, seed=5)[:1, :, :20, :16], mask_of(1, 2, 20, 16, seed=5))


@pytest.mark.parametrize("deterministic", [False, True], ids=["one pass", "two passes"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_and_backward_use_the_same_mask(activation, deterministic):
    q, k, v = draw(2, 2, 35, 24, seed=1), draw(2, 2, 40, 24, seed=2), draw(2, 2, 40, 24, seed=3)
    kept = mask_of(2, 2, 35, 40, seed=9)
    options = {"scale": 0.3, "activation": activation}
    assert_as_exact_as(
        lambda *x: relu_attention(*x[:3], threshold=x[3], dropout=RATE, seed=9, deterministic=deterministic, **options),
        lambda *x: reference(*x, kept=kept, **options),
        q,
        k,
        v,
        draw(2, seed=4) * 0.3,
    )


def test_packed_sequences_have_a_mask_too():
    """The mask follows the rows of the stream: one long sequence and two short ones agree where both look."""
    q = torch.ones(40, 2, 40, device=DEVICE)
    v = torch.eye(40, device=DEVICE)[:, None].expand(40, 2, 40)

    def weights(*ends: int) -> torch.Tensor:
        cu = torch.tensor([0, *ends], dtype=torch.int32, device=DEVICE)
        packing = Packing(cu, 40)
        return relu_attention_packed(q, q, v, packing, packing, scale=1 / 40, dropout=RATE, seed=3)

    whole, split = weights(40), weights(15, 40)
    assert torch.equal(split[:15, :, :15], whole[:15, :, :15])
    assert torch.equal(split[15:, :, 15:], whole[15:, :, 15:])
    assert split[15:, :, :15].abs().max() == 0
    assert (whole == 0).any()


def test_no_dropout_needs_no_seed():
    q, k, v = (draw(1, 1, 20, 16, seed=seed) for seed in range(3))
    assert torch.equal(relu_attention(q, k, v, scale=0.25, seed=1), relu_attention(q, k, v, scale=0.25, seed=2))
