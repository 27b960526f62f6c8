"""Norms on the merged heads: equations 4 and 5, their distance from them, their start, their precision and slope."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import rela
from rela.attention.norms import EPSILON, make_norm
from tests.attention.attention_cases import normal

C, H = 12, 3
D = C // H


def equation_4(z: Tensor, g: Tensor, eps: float = EPSILON) -> Tensor:
    return z / ((z**2).sum(-1, keepdim=True) / z.size(-1) + eps) ** 0.5 * g


def test_a_head_feels_the_others_through_the_norm():
    """Scaling one head's values changes what every other head contributes: RMS is shared."""
    norm = rela.RMSNorm(C, dtype=torch.float64)
    z = normal(1, C)
    scaled = z.clone()
    scaled[:, :D] *= 3
    assert not torch.allclose(norm(z)[:, D:], norm(scaled)[:, D:], rtol=1e-2)


def test_epsilon_moves_the_norm_by_no_more_than_its_share():
    """1/√(m + ε) lies within ε/(2m) of 1/√m: the documented distance from equation 4 without ε."""
    z = normal(9, C, seed=4)
    norm = rela.RMSNorm(C, dtype=torch.float64)
    exact = equation_4(z, norm.gain, eps=0.0)
    share = EPSILON / (2 * z.square().mean(-1, keepdim=True))
    assert ((norm(z) - exact).abs() <= exact.abs() * share * (1 + 1e-6)).all()


def test_gain_and_gate_start_as_the_paper_starts_them():
    """Footnote 4: uniform Xavier over the normalised size, U(-√(3/d), √(3/d)), variance 1/d."""
    torch.manual_seed(0)
    size = 4096
    bound = (3 / size) ** 0.5
    rela_i, rela_g = (make_norm(rela.PRESETS[kind].norm, size) for kind in ("rela-i", "rela-g"))
    assert rela_i.gate is None
    assert torch.equal(rela_g.gain, torch.ones(size))
    for start in (rela_i.gain, rela_g.gate):
        assert start.abs().max() <= bound
        assert abs(start.mean()) < 5 / size  # five standard errors of the mean: √(1/d) / √d
        assert start.var().item() == pytest.approx(1 / size, rel=0.15)


def test_layer_norm_is_torch_s_without_its_bias_and_the_gate_multiplies():
    z, gain, gate = normal(5, C, seed=1), normal(C, seed=2), normal(C, seed=3)
    plain = rela.LayerNorm(C, dtype=torch.float64)
    gated = rela.LayerNorm(C, gated=True, dtype=torch.float64)
    with torch.no_grad():
        plain.gain.copy_(gain)
        gated.gain.copy_(gain)
        gated.gate.copy_(gate)
    expected = torch.nn.functional.layer_norm(z, (C,), gain, None, EPSILON)
    assert_close(plain(z), expected, rtol=1e-12, atol=1e-14)
    assert_close(gated(z), torch.sigmoid(gate * z) * expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", [n for n in rela.NORMS if n != "none"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_are_taken_in_float32(norm: str, dtype: torch.dtype):
    """Squares of 300 overflow float16, and bfloat16 cannot sum 500 of them: the result is the rounded exact one."""
    module = make_norm(norm, 500)
    z = (300 * normal(3, 500, seed=5)).to(dtype)
    out = module(z)
    assert out.dtype == dtype
    expected = make_norm(norm, 500, dtype=torch.float64)
    expected.load_state_dict(module.state_dict())
    assert_close(out.double(), expected(z.double()), rtol=torch.finfo(dtype).eps, atol=1e-7)


STEP = 1e-6


@pytest.mark.parametrize("name", [n for n in rela.NORMS if n != "none"])
def test_gradients_of_norms_are_exact(name: str):
    """In z, the gain and the gate."""
    norm = make_norm(name, 7, dtype=torch.float64)
    parameters = {n: normal(7, seed=3 + i).requires_grad_() for i, n in enumerate(dict(norm.named_parameters()))}

    def call(z: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(norm, dict(zip(parameters, values, strict=True)), (z,))

    assert gradcheck(call, (normal(4, 7).requires_grad_(), *parameters.values()), eps=STEP, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in rela.NORMS if n != "none"])
def test_norms_at_null_attention(name: str):
    """z = 0 with a step far below √ε, where the norm is as good as linear."""
    norm = make_norm(name, 5, dtype=torch.float64)
    assert gradcheck(norm, torch.zeros(1, 5, dtype=torch.float64, requires_grad=True), eps=1e-8, atol=1e-3, rtol=1e-4)


def test_a_whole_number_as_eps_is_a_float():
    """Triton makes a constant of a kernel's argument that is the integer 1, whatever the next call brings."""
    assert type(rela.RMSNorm(4, eps=1).eps) is float
