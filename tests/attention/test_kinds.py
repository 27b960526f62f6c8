"""ReLA-i and ReLA-g are equations 3 to 5 of the paper, written out here once more in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import rela
from rela.attention.norms import EPSILON, make_norm
from tests.attention.attention_cases import KINDS, attention, normal

C, H = 12, 3
D = C // H


def heads_of_equation_3(module: rela.MultiheadAttention, x: Tensor, y: Tensor) -> list[Tensor]:
    """α V of each head for one sentence: x [T, C] looks at y [S, C], α = ReLU(Q Kᵀ / √d)."""
    weight_q, weight_k, weight_v = module.in_proj_weight.split(C)
    bias_q, bias_k, bias_v = module.in_proj_bias.split(C)
    heads = []
    for h in range(H):
        own = slice(h * D, (h + 1) * D)
        q = x @ weight_q[own].T + bias_q[own]
        k = y @ weight_k[own].T + bias_k[own]
        v = y @ weight_v[own].T + bias_v[own]
        alpha = torch.maximum(q @ k.T / D**0.5, torch.zeros((), dtype=torch.float64))
        heads.append(alpha @ v)
    return heads


def equation_4(z: Tensor, g: Tensor, eps: float = EPSILON) -> Tensor:
    return z / ((z**2).sum(-1, keepdim=True) / z.size(-1) + eps) ** 0.5 * g


def equation_5(z: Tensor, g: Tensor, w: Tensor, eps: float = EPSILON) -> Tensor:
    return 1 / (1 + torch.exp(-w * z)) * equation_4(z, g, eps)


def project_out(module: rela.MultiheadAttention, z: Tensor) -> Tensor:
    return z @ module.out_proj.weight.T + module.out_proj.bias


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["rela-i", "rela-g", "relu-rms", "relu"])
def test_the_paper_s_equations(kind: str, need_weights: bool):
    module = attention(kind, C, H)
    x, y = normal(2, 5, C, seed=1), normal(2, 7, C, seed=2)
    out, _ = module(x, y, y, need_weights=need_weights)
    for b in range(2):
        z = torch.cat(heads_of_equation_3(module, x[b], y[b]), -1)
        if kind in ("rela-i", "relu-rms"):
            z = equation_4(z, module.norm.gain)
        elif kind == "rela-g":
            z = equation_5(z, module.norm.gain, module.norm.gate)
        assert_close(out[b], project_out(module, z), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ["rela-i", "rela-g"])
def test_the_norm_acts_on_the_concatenated_heads(kind: str):
    """Norms within each head, as some public versions have them, give another output."""
    module = attention(kind, C, H)
    x = normal(1, 5, C, seed=1)
    z = heads_of_equation_3(module, x[0], x[0])
    gains, gates = module.norm.gain.split(D), (module.norm.gate if kind == "rela-g" else module.norm.gain).split(D)
    within = [
        equation_5(z[h], gains[h], gates[h]) if kind == "rela-g" else equation_4(z[h], gains[h]) for h in range(H)
    ]
    difference = module(x, x, x)[0][0] - project_out(module, torch.cat(within, -1))
    assert difference.abs().max() > 0.05


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


@pytest.mark.parametrize(("kind", "growth"), [("relu", 0), ("relu-rms", 1), ("rela-i", 1), ("rela-g", 2)])
def test_parameters_grow_by_the_gain_and_the_gate_and_nothing_else(kind: str, growth: int):
    def count(module: rela.MultiheadAttention) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    for size, heads in ((12, 3), (512, 8)):
        softmax = count(rela.MultiheadAttention(size, heads, kind="softmax"))
        assert count(rela.MultiheadAttention(size, heads, kind=kind)) - softmax == growth * size


def test_a_learned_threshold_adds_one_number_a_head():
    plain, learned = (rela.MultiheadAttention(C, H, threshold=threshold) for threshold in (0.0, "learned"))
    assert learned.state_dict().keys() - plain.state_dict().keys() == {"threshold"}
    assert learned.threshold.shape == (H,)


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_its_weights_then_its_norm(kind: str):
    """The module's output is the norm of weights · v; `rela.attention_weights` and `need_weights` agree on the weights."""
    module = attention(kind, C, H)
    x, y = normal(2, 5, C, seed=1), normal(2, 7, C, seed=2)
    out, weights = module(x, y, y, average_attn_weights=False)
    flat = torch.nn.functional.linear(x, *first_projection(module))
    k, v = (t.unflatten(-1, (H, D)).transpose(1, 2) for t in key_value_projections(module, y))
    q = flat.unflatten(-1, (H, D)).transpose(1, 2)
    assert_close(weights, rela.attention_weights(q, k, kind=kind), rtol=1e-12, atol=1e-14)
    context = rela.attend(q, k, v, kind=kind)
    assert_close(context, weights @ v, rtol=1e-12, atol=1e-13)
    merged = context.transpose(1, 2).flatten(-2)
    assert_close(out, project_out(module, merged if module.norm is None else module.norm(merged)))


def first_projection(module: rela.MultiheadAttention) -> tuple[Tensor, Tensor]:
    return module.in_proj_weight[:C], module.in_proj_bias[:C]


def key_value_projections(module: rela.MultiheadAttention, y: Tensor) -> tuple[Tensor, ...]:
    return torch.nn.functional.linear(y, module.in_proj_weight[C:], module.in_proj_bias[C:]).chunk(2, -1)


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
    """Squares of 300 overflow float16, and bfloat16 cannot sum 500 of them: the half result is the rounded exact one."""
    module = make_norm(norm, 500)
    z = (300 * normal(3, 500, seed=5)).to(dtype)
    out = module(z)
    assert out.dtype == dtype
    expected = make_norm(norm, 500, dtype=torch.float64)
    expected.load_state_dict(module.state_dict())
    assert_close(out.double(), expected(z.double()), rtol=torch.finfo(dtype).eps, atol=1e-7)
