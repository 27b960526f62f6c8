"""Every kind in every precision on inputs at the ends of their ranges: what the type can hold comes out finite."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import rela
from rela.attention.kinds import ALPHAS
from rela.attention.weights import weights_of
from tests.attention.attention_cases import HALVES, KINDS, WEIGHTS, attention, normal

B, T, S, C, H = 2, 3, 5, 12, 3
SIGNS = torch.tensor([1.0, -1.0]).repeat(C // 2)


def large(*size: int, seed: int) -> Tensor:
    """Products of two such vectors of C/H = 4 numbers, over √4, are of the order of 10⁴."""
    return 100.0 * normal(*size, seed=seed)


CASES = {
    "scores of 1e4": (large(B, T, C, seed=1), large(B, S, C, seed=2)),
    "all scores equal": (torch.ones(B, T, C), torch.ones(B, S, C)),
    "all scores zero": (torch.zeros(B, T, C), torch.zeros(B, S, C)),
    "all scores negative": (SIGNS.expand(B, T, C), -SIGNS.expand(B, S, C)),
    "all scores -1e4": (100.0 * SIGNS.expand(B, T, C), -100.0 * SIGNS.expand(B, S, C)),
    "all keys masked": (normal(B, T, C, seed=1), normal(B, S, C, seed=2)),
    "length one": (normal(B, 1, C, seed=1), normal(B, 1, C, seed=2)),
    "8,192 keys": (normal(1, 2, C, seed=1), normal(1, 8192, C, seed=2)),
    "no sentence": (normal(0, T, C), normal(0, S, C)),
    "no query": (normal(B, 0, C), normal(B, S, C)),
    "no key": (normal(B, T, C), normal(B, 0, C)),
}


def identity_projections(module: nn.Module) -> nn.Module:
    """q, k and v are the inputs themselves, so that a case decides the scores."""
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(C).repeat(3, 1))
        module.in_proj_bias.zero_()
    return module


def outcome(module: nn.Module, case: str, dtype: torch.dtype, need_weights: bool) -> dict[str, Tensor]:
    """Output, and gradients of inputs and parameters."""
    module = copy.deepcopy(module).to(dtype)
    query, key = (x.to(dtype).clone().requires_grad_() for x in CASES[case])
    hidden = torch.full(key.shape[:2], case == "all keys masked")
    out, _ = module(query, key, key, key_padding_mask=hidden, need_weights=need_weights)
    (out * normal(*out.shape, seed=3).to(dtype)).sum().backward()
    parameters = {f"gradient of {name}": parameter.grad for name, parameter in module.named_parameters()}
    return {"output": out.detach(), "gradient of query": query.grad, "gradient of key": key.grad, **parameters}


def assert_finite_where_it_fits(found: dict[str, Tensor], exact: dict[str, Tensor], dtype: torch.dtype) -> None:
    """All is finite if the exact values fit into the type; where they do not, all of them are exempt."""
    if max((float(x.abs().max()) for x in exact.values() if x.numel()), default=0.0) > torch.finfo(dtype).max / 2:
        return
    for name, tensor in found.items():
        assert tensor.isfinite().all(), name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_module_is_finite(kind: str, dtype: torch.dtype, case: str):
    module = identity_projections(attention(kind, C, H)).to(dtype)
    for need_weights in (True, False):
        exact = outcome(module, case, torch.float64, need_weights)
        found = outcome(module, case, dtype, need_weights)
        assert all(x.isfinite().all() for x in exact.values())
        assert found["output"].shape == exact["output"].shape
        assert_finite_where_it_fits(found, exact, dtype)
        if module.norm is not None:  # which brings any context back to size
            assert found["output"].isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sentences_are_finite(kind: str, dtype: torch.dtype):
    """Large scores, an empty sentence and filler; then no token at all."""
    module = attention(kind, C, H, dtype=dtype)
    for tokens, ends in ((8, [0, 3, 3, 6]), (0, [0, 0]), (2, [0])):
        x = (3 * normal(tokens, C)).to(dtype).requires_grad_()
        cu = torch.tensor(ends, dtype=torch.int32)
        module.zero_grad()
        out = module.forward_packed(x, x, cu, cu, 3, 3)
        assert out.isfinite().all()
        out.sum().backward()
        assert all(tensor.grad is None or tensor.grad.isfinite().all() for tensor in (x, *module.parameters()))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_are_finite(weights: str, dtype: torch.dtype, case: str):
    """A weight is finite wherever the exact one, of the same scores, is within the type."""
    query, key = (x.to(dtype).unflatten(-1, (H, -1)).transpose(1, 2) for x in CASES[case])
    mask = torch.zeros(query.size(2), key.size(2), dtype=torch.bool) if case == "all keys masked" else None
    exact = rela.attention_weights(query.double(), key.double(), kind=weights, mask=mask)
    found = rela.attention_weights(query, key, kind=weights, mask=mask)
    assert not found.isnan().any()
    assert found[exact.abs() < torch.finfo(dtype).max / 2].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_meta_device_gives_shapes_in_float16(kind: str):
    """Without autocast to switch off, which that device does not know."""
    module = attention(kind, C, H, dtype=torch.float16).to("meta")
    x = torch.zeros(B, T, C, dtype=torch.float16, device="meta")
    for need_weights in (True, False):
        out, _ = module(x, x, x, need_weights=need_weights)
        assert (out.shape, out.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["rela-g", "relu2-g"])
def test_float16_by_autocast_and_compiled(kind: str, need_weights: bool):
    """Products inside autocast would round the context again; the compiled module is the module."""
    module = identity_projections(attention(kind, C, H, dtype=torch.float32))
    x = large(B, T, C, seed=1).float()
    with torch.autocast("cpu", torch.float16):
        out, _ = module(x, x, x, need_weights=need_weights)
    assert out.dtype == torch.float16
    assert out.isfinite().all()
    module, x = module.half(), x.half()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, x, x, need_weights=need_weights)[0], module(x, x, x, need_weights=need_weights)[0])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_is_finite_at_the_ends_of_its_range(alpha: float, dtype: torch.dtype):
    for spread in (0.0, 0.01, 1.0, 1e4):
        scores = (spread * normal(7, 33)).to(dtype).requires_grad_()
        weights = weights_of(f"entmax:{alpha}")(scores, None)
        assert_close(weights.float().sum(-1), torch.ones(7), rtol=0, atol=33 * torch.finfo(dtype).eps)
        weights.backward(normal(7, 33, seed=1).to(dtype))
        assert scores.grad.isfinite().all()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["rela-g", "rela-i", "rela-g-layernorm", "rela-g-gelu", "rela-g-leaky", "relu2-g"])
def test_float16_takes_a_long_row_of_positive_scores(kind: str, need_weights: bool):
    """A context far above 65,504 reaches the norm, which brings it back, in float32."""
    length = 16_384
    module = identity_projections(attention(kind, C, H)).half()
    query, key = (2.0 + 0.1 * normal(1, n, C, seed=n) for n in (T, length))
    query, key = query.half(), key.half()
    with torch.no_grad():
        context = rela.attend(*(x.double().unflatten(-1, (H, -1)).transpose(1, 2) for x in (query, key, key)))
        assert context.min() > 2 * torch.finfo(torch.float16).max
        found, _ = module(query, key, key, need_weights=need_weights)
        cu = [torch.tensor([0, n], dtype=torch.int32) for n in (T, length)]
        packed = module.forward_packed(query[0], key[0], *cu, T, length)
        exact, _ = copy.deepcopy(module).double()(query.double(), key.double(), key.double())
    # Three roundings of numbers of order one, summed over C products.
    bound = {"rtol": 0, "atol": 3 * C * torch.finfo(torch.float16).eps}
    assert_close(found.double(), exact, **bound)
    assert_close(packed.double(), exact[0], **bound)
