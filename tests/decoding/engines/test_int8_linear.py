"""A linear map in int8 errs by no more than its rounding, and no row depends on another."""

from __future__ import annotations

import pytest
import torch

from rela.decoding.engines.int8_linear import LEVELS, QuantisedLinear, weight_levels


@pytest.mark.parametrize(("rows", "inner", "outputs"), [(1, 7, 5), (3, 60, 63), (8, 512, 40), (70, 33, 130)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_linear_map_errs_by_no_more_than_its_rounding(rows, inner, outputs, biased):
    """x = x̂ + e, |e| ≤ s/2, and w likewise: |x·w - x̂·ŵ| ≤ Σ|x| t/2 + Σ|w| s/2 + K s t/4 for steps s and t."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inner, generator=generator) * torch.logspace(-4, 4, rows)[:, None]
    weight = torch.randn(outputs, inner, generator=generator) * torch.logspace(-3, 3, outputs)[:, None]
    bias = torch.randn(outputs, generator=generator) if biased else None
    factor = torch.rand(rows, 1, generator=generator) + 0.5
    exact = (x.double() * factor) @ weight.double().T + (0.0 if bias is None else bias.double())
    s = x.double().abs().amax(1, keepdim=True) / LEVELS
    t = weight.double().abs().amax(1) / weight_levels()
    bound = x.double().abs().sum(1, keepdim=True) * t / 2 + weight.double().abs().sum(1) * s / 2 + inner * s * t / 4
    got = QuantisedLinear(weight, bias)(x, factor)
    # in float32 a step's place is itself known to 2⁻¹⁷ of a step, a result to a few units in its last place
    allowed = bound * factor * (1 + 1e-4) + 1e-6 * exact.abs()
    assert ((got - exact).abs() <= allowed).all()
    assert (got - exact).abs().max() > 0, "something was rounded"


def test_values_on_the_grid_are_exact():
    """Whole numbers with 127 among them have steps of one, and nothing is lost."""
    x = torch.tensor([[127.0, -126.0, 0.0, 3.0], [1.0, 2.0, 127.0, -127.0]])
    top = float(weight_levels())
    weight = torch.tensor([[top, 1.0, -5.0, 0.0], [-3.0, 2.0, -top, 60.0], [0.0, 0.0, 0.0, top]])
    torch.testing.assert_close(QuantisedLinear(weight)(x), x @ weight.T, rtol=1e-6, atol=0.0)


def test_zeros_stay_zeros_and_nan_stays_nan():
    linear = QuantisedLinear(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    assert (linear(torch.zeros(2, 2)) == 0).all()
    assert (linear(torch.ones(1, 2))[0, 0]) == 0
    broken = QuantisedLinear(torch.tensor([[float("nan"), 1.0], [1.0, 2.0]]))(torch.ones(1, 2))
    assert broken[0, 0].isnan()
    assert not broken[0, 1].isnan()
    assert linear(torch.tensor([[float("nan"), 1.0]])).isnan().all()


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 33])
def test_a_row_does_not_depend_on_the_others(rows):
    generator = torch.Generator().manual_seed(1)
    linear = QuantisedLinear(torch.randn(70, 48, generator=generator), torch.randn(70, generator=generator))
    x = torch.randn(40, 48, generator=generator) * torch.logspace(-2, 2, 40)[:, None]
    assert torch.equal(linear(x)[:rows], linear(x[:rows]))
