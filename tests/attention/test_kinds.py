"""ReLA-i and ReLA-g are equations 3 to 5 of the paper, written out here once more in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import rela
from rela.attention.kinds import kind_of
from rela.attention.norms import EPSILON
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


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_its_weights_then_its_norm(kind: str):
    """The module's output is the norm of weights · v; `rela.attention_weights` and `need_weights` agree."""
    module = attention(kind, C, H)
    x, y = normal(2, 5, C, seed=1), normal(2, 7, C, seed=2)
    out, weights = module(x, y, y, average_attn_weights=False)
    flat = torch.nn.functional.linear(x, *first_projection(module))
    k, v = (t.unflatten(-1, (H, D)).transpose(1, 2) for t in key_value_projections(module, y))
    q = flat.unflatten(-1, (H, D)).transpose(1, 2)
    assert_close(weights, rela.attention_weights(q, k, kind=kind_of(kind).weights), rtol=1e-12, atol=1e-14)
    context = rela.attend(q, k, v, kind=kind_of(kind).weights)
    assert_close(context, weights @ v, rtol=1e-12, atol=1e-13)
    merged = context.transpose(1, 2).flatten(-2)
    assert_close(out, project_out(module, merged if module.norm is None else module.norm(merged)))


def first_projection(module: rela.MultiheadAttention) -> tuple[Tensor, Tensor]:
    return module.in_proj_weight[:C], module.in_proj_bias[:C]


def key_value_projections(module: rela.MultiheadAttention, y: Tensor) -> tuple[Tensor, ...]:
    return torch.nn.functional.linear(y, module.in_proj_weight[C:], module.in_proj_bias[C:]).chunk(2, -1)


@pytest.mark.parametrize("kind", [*rela.PRESETS, *rela.PRESETS.values(), "topk:2", "relu2+rms", "gelu+none"])
def test_a_norm_is_refused_where_it_would_be_left_out(kind):
    """The functions see heads apart, and a norm acts on merged ones: their answer would not be the kind's."""
    x, cu = torch.ones(2, 2, 4, 6), torch.tensor([0, 2], dtype=torch.int32)
    calls = (
        lambda: rela.attend(x, x, x, kind=kind),
        lambda: rela.attention_weights(x, x, kind=kind),
        lambda: rela.attend_packed(x[0], x[0], x[0], cu, cu, 2, 2, kind=kind),
    )
    for call in calls:
        if kind_of(kind).norm == "none":
            assert call().shape[:-1] in ((2, 2, 4), (2, 4))
        else:
            weights = kind_of(kind).weights
            with pytest.raises(
                ValueError, match=rf"acts on merged heads; wanted '{weights}', or rela.MultiheadAttention"
            ):
                call()


def test_the_functions_compute_the_weights_of_rela_if_nothing_is_said():
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    cu = torch.tensor([0, 5], dtype=torch.int32)
    packed = [x[0].transpose(0, 1) for x in (q, k, v)]
    assert torch.equal(rela.attend(q, k, v), rela.attend(q, k, v, kind="relu"))
    assert torch.equal(rela.attention_weights(q, k), rela.attention_weights(q, k, kind="relu"))
    plain, relu = (rela.attend_packed(*packed, cu, cu, 5, 5, **kind) for kind in ({}, {"kind": "relu"}))
    assert torch.equal(plain, relu)
