"""The end of a sublayer: the norm after the sum, or before the sublayer."""

import pytest
import torch
from torch.nn.functional import layer_norm
from torch.testing import assert_close

from rela.model.residual import Residual


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 8, generator=generator), torch.randn(3, 8, generator=generator)


def test_after_the_sum_as_in_the_paper():
    x, change = inputs()
    residual = Residual(8, 0.0, norm_first=False)
    assert torch.equal(residual.before(x), x)
    assert_close(residual.after(x, change), layer_norm(x + change, (8,)))


def test_before_the_sublayer():
    x, change = inputs()
    residual = Residual(8, 0.0, norm_first=True)
    assert_close(residual.before(x), layer_norm(x, (8,)))
    assert torch.equal(residual.after(x, change), x + change)


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_falls_on_the_change_alone_and_in_training_alone(norm_first: bool):
    x, change = inputs()
    residual = Residual(8, 0.999999, norm_first)
    assert_close(residual.after(x, change), x if norm_first else layer_norm(x, (8,)))
    expected = x + change if norm_first else layer_norm(x + change, (8,))
    assert_close(residual.eval().after(x, change), expected)
