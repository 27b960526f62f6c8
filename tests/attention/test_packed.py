"""Packed sentences attend as each does alone; filler at the end gets zeros and gives none."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import prune, weight_norm
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import KINDS, WEIGHTS, attention, normal

few = settings(deadline=None, max_examples=10)
lengths = st.lists(st.integers(0, 6), min_size=1, max_size=5)
EXACT = {"rtol": 1e-9, "atol": 1e-10}
C, H = 12, 6


def cumulative(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)


@few
@given(
    counts=lengths,
    filler=st.integers(0, 3),
    causal=st.booleans(),
    groups=st.sampled_from([1, 2, 4]),
    slack=st.integers(0, 2),
)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_packed_is_each_sentence_alone(weights, counts, filler, causal, groups, slack):
    """Self-attention; empty sentences, filler, grouped heads, a longest length above the real one."""
    cu, longest = cumulative(counts), max(counts) + slack
    tokens = sum(counts) + filler
    q, k, v = (normal(tokens, 4 if n == 0 else groups, 5, seed=n).requires_grad_() for n in range(3))
    out = rela.attend_packed(q, k, v, cu, cu, longest, longest, kind=weights, causal=causal)
    assert out.shape == (tokens, 4, 5)
    for begin, end in pairwise(cu.tolist()):
        alone = (x[None, begin:end].transpose(1, 2) for x in (q, k, v))
        expected = rela.attend(*alone, kind=weights, causal=causal)[0].transpose(0, 1)
        assert_close(out[begin:end], expected, **EXACT)
    assert not out[sum(counts) :].any()
    slopes = torch.autograd.grad((out * normal(*out.shape, seed=9)).sum(), (q, k, v))
    for slope in slopes:
        assert slope.isfinite().all()
        assert not slope[sum(counts) :].any()


@few
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=4),
    filler=st.integers(0, 2),
    causal=st.booleans(),
)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_cross_attention_between_packings(weights, pairs, filler, causal):
    """Each target looks at its own source; a source of no tokens gives zeros; causal sentences end together."""
    targets, sources = [t for t, _ in pairs], [s for _, s in pairs]
    cu_q, cu_k = cumulative(targets), cumulative(sources)
    q = normal(sum(targets) + filler, 2, 3)
    k, v = (normal(sum(sources) + filler, 2, 3, seed=n) for n in (1, 2))
    out = rela.attend_packed(q, k, v, cu_q, cu_k, max(targets), max(sources), kind=weights, causal=causal)
    for b in range(len(pairs)):
        own_q, own_k = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        alone = (x[None].transpose(1, 2) for x in (q[own_q], k[own_k], v[own_k]))
        assert_close(out[own_q], rela.attend(*alone, kind=weights, causal=causal)[0].transpose(0, 1), **EXACT)
    assert not out[sum(targets) :].any()


@few
@given(counts=lengths, filler=st.integers(0, 3), causal=st.booleans(), groups=st.sampled_from([1, 2, 6]))
@pytest.mark.parametrize("kind", KINDS)
def test_the_module_packed_is_the_module_padded(kind, counts, filler, causal, groups):
    module = attention(kind, C, H, num_kv_heads=groups).eval()
    cu = cumulative(counts)
    x = normal(sum(counts) + filler, C).requires_grad_()
    out = module.forward_packed(x, x, cu, cu, max(counts), max(counts), causal=causal)
    for begin, end in pairwise(cu.tolist()):
        one = x[None, begin:end]
        assert_close(out[begin:end], module(one, one, one, is_causal=causal)[0][0], **EXACT)
    assert not out[sum(counts) :].any()
    (slope,) = torch.autograd.grad((out * normal(*out.shape, seed=9)).sum(), x)
    assert not slope[sum(counts) :].any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_packed_over_another_packing(kind: str):
    module = attention(kind, C, H, kdim=7, vdim=7).eval()
    cu_q, cu_k = cumulative([3, 0, 2]), cumulative([4, 2, 0])
    query, key = normal(6, C), normal(7, 7, seed=1)
    out = module.forward_packed(query, key, cu_q, cu_k, 3, 4)
    first, memory = query[None, :3], key[None, :4]
    assert_close(out[:3], module(first, memory, memory)[0][0], **EXACT)
    assert_close(out[3:5], module.out_proj.bias.expand(2, C), rtol=0, atol=0)  # no source
    assert not out[5:].any()  # filler


@pytest.mark.parametrize("kind", KINDS)
def test_filler_passes_no_gradient_to_any_parameter(kind: str):
    module = attention(kind, C, H)
    cu = cumulative([3, 2])
    x = normal(8, C)
    out = module.forward_packed(x, x, cu, cu, 3, 3)
    (out[5:] * normal(3, C, seed=1)).sum().backward()
    assert not out[5:].any()
    assert all(not parameter.grad.any() for parameter in module.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_filler_of_any_content_is_harmless(kind: str, dtype: torch.dtype):
    """Large numbers in the filler reach neither the sentences nor the parameters' gradients."""
    module = attention(kind, C, H, dtype)
    cu = cumulative([3, 2])
    gradients = []
    for content in (0.0, 100.0):
        x = normal(8, C, dtype=dtype)
        x[5:] = content
        module.zero_grad()
        module.forward_packed(x, x, cu, cu, 3, 3)[:5].square().sum().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in module.named_parameters()})
    assert_close(gradients[1], gradients[0], rtol=0, atol=0)
    assert all(gradient.isfinite().all() for gradient in gradients[0].values())


def test_thresholds_and_dropout_reach_the_packed_path():
    cu = cumulative([4, 3])
    q, k, v = (normal(7, 2, 3, seed=n) for n in range(3))

    def call(**options):
        return rela.attend_packed(q, k, v, cu, cu, 4, 4, kind="relu", **options)

    assert not call(threshold=1e6).any()
    theta = torch.tensor([1e6, -1.0], dtype=torch.float64)
    assert not call(threshold=theta)[:, 0].any()
    assert call(threshold=theta)[:, 1].all()
    assert_close(call(scale=0.5), call(scale=1.0) / 2)  # relu is homogeneous
    torch.manual_seed(0)
    assert not torch.equal(call(dropout=0.5), call())


def test_no_sentence_at_all():
    empty = torch.zeros(1, dtype=torch.int32)
    q = normal(3, 2, 4)
    assert torch.equal(rela.attend_packed(q, q, q, empty, empty, 0, 0), torch.zeros_like(q))
    none = normal(0, 2, 4)
    zero = torch.zeros(2, dtype=torch.int32)
    assert rela.attend_packed(none, none, none, zero, zero, 0, 0).shape == (0, 2, 4)


def test_a_batch_of_filler_alone_can_be_trained_on():
    """As a process may get it that has no sentence left: every input has a gradient, of zeros."""
    empty = torch.zeros(1, dtype=torch.int32)
    inputs = [torch.randn(3, 2, 4, requires_grad=True) for _ in range(3)]
    rela.attend_packed(*inputs, empty, empty, 0, 0).sum().backward()
    assert all(torch.equal(x.grad, torch.zeros_like(x)) for x in inputs)


@pytest.mark.parametrize("name", ["cu_queries", "cu_keys"])
def test_cumulative_lengths_of_the_wrong_kind_are_named(name: str):
    """A kernel would read the halves of 64-bit numbers as lengths."""
    q, cu = normal(5, 2, 8), cumulative([2, 3])
    lengths = {"cu_queries": cu, "cu_keys": cu} | {name: cu.long()}
    with pytest.raises(ValueError, match=rf"{name} is torch.int64 \[3\]; wanted an int32 tensor"):
        rela.attend_packed(q, q, q, **lengths, max_queries=3, max_keys=3, kind="relu")


@pytest.mark.parametrize("hook", ["prune", "weight_norm"])
def test_weights_that_hooks_make_before_a_forward_are_those_of_the_parameters_as_they_are(hook):
    module = rela.MultiheadAttention(12, 3, kind="rela-g", batch_first=True, dtype=torch.float64)
    if hook == "prune":
        prune.l1_unstructured(module, "in_proj_weight", amount=0.4)
        parameter = module.in_proj_weight_orig
    else:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # the new one is a parametrisation
            weight_norm(module, "in_proj_weight")
        parameter = module.in_proj_weight_v
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    ends = torch.tensor([0, 5], dtype=torch.int32)
    for _ in range(2):  # a step of an optimiser between two calls
        with torch.no_grad():
            parameter += torch.randn_like(parameter)
        packed = module.forward_packed(x[0], x[0], ends, ends, 5, 5)
        packed.sum().backward()
        with torch.no_grad():
            parameter += torch.randn_like(parameter)
            remembered = module.remember(x)
        looked = module(x, cache=remembered)[0]
        assert_close(looked, module(x, x, x)[0])
        assert_close(module.forward_packed(x[0], x[0], ends, ends, 5, 5), looked[0])
