"""A query that may look at nothing, or looks at nothing, is a normal case: zeros and finite gradients, every kind.

Softmax of a row without keys is 0/0 in PyTorch, and entmax raises or returns NaN; here the context is 0, the norm of
it is 0, the output is the output projection's bias, and no gradient is anything but finite.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import HALVES, KINDS, RECTIFYING, WEIGHTS, attention, normal

B, T, S, C, H = 3, 5, 7, 12, 3


def run(module: nn.Module, query: Tensor, key: Tensor, **call):
    """Output, weights, and the gradients of query and key, after a backward that must leave everything finite."""
    query, key = query.clone().requires_grad_(), key.clone().requires_grad_()
    module.zero_grad()
    out, weights = module(query, key, key, **call)
    (out * normal(*out.shape, seed=9, dtype=out.dtype)).sum().backward()
    assert out.isfinite().all(), "output"
    assert weights is None or weights.isfinite().all(), "weights"
    for name, gradient in [("query", query.grad), ("key", key.grad)]:
        assert gradient.isfinite().all(), f"gradient of {name}"
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), f"gradient of {name}"  # noqa: PT018
    return out, weights, query.grad, key.grad


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_without_keys(kind: str, dtype: torch.dtype):
    """Sentence 1 is all padding: its queries get the bias, its keys and queries no gradient, others what they had."""
    module = attention(kind, C, H, dtype)
    query, key = normal(B, T, C, seed=1, dtype=dtype), normal(B, S, C, seed=2, dtype=dtype)
    hidden = torch.zeros(B, S, dtype=torch.bool)
    hidden[1] = True
    biases = torch.zeros(B, S, dtype=dtype).masked_fill(hidden, float("-inf"))
    for padding in (hidden, biases):
        for need_weights in (True, False):
            out, weights, d_query, d_key = run(module, query, key, key_padding_mask=padding, need_weights=need_weights)
            assert torch.equal(out[1], module.out_proj.bias.expand(T, C))
            assert not d_query[1].any()
            assert not d_key[1].any()
            assert weights is None or not weights[1].any()
            others = module(query[::2], key[::2], key[::2], need_weights=need_weights)[0]
            step = torch.finfo(dtype).eps
            assert_close(out[::2], others, rtol=8 * step, atol=8 * step)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_without_keys(kind: str, dtype: torch.dtype):
    """Row 2 of the mask hides everything, by True, by -inf, and for one head only."""
    module = attention(kind, C, H, dtype)
    query, key = normal(B, T, C, seed=1, dtype=dtype), normal(B, S, C, seed=2, dtype=dtype)
    mask = normal(T, S, seed=3) > 1.0
    mask[2] = True
    infinite = torch.zeros(T, S, dtype=dtype).masked_fill(mask, float("-inf"))
    for attn_mask in (mask, infinite):
        for need_weights in (True, False):
            out, weights, d_query, _ = run(module, query, key, attn_mask=attn_mask, need_weights=need_weights)
            assert torch.equal(out[:, 2], module.out_proj.bias.expand(B, C))
            assert not d_query[:, 2].any()
            assert weights is None or not weights[:, 2].any()
    one_head = torch.zeros(B * H, T, S, dtype=torch.bool)
    one_head[1, 2] = True  # sentence 0, head 1
    _, weights, _, _ = run(module, query, key, attn_mask=one_head, average_attn_weights=False)
    assert not weights[0, 1, 2].any()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_the_lowest_finite_number(kind: str, dtype: torch.dtype):
    """Common in public code instead of -inf: added to a negative score it leaves float16's range; no NaN may come."""
    module = attention(kind, C, H, dtype)
    query, key = 3 * normal(B, T, C, seed=1, dtype=dtype), 3 * normal(B, S, C, seed=2, dtype=dtype)
    lowest = torch.zeros(T, S, dtype=dtype)
    lowest[2] = torch.finfo(dtype).min
    if "leaky" in kind:
        lowest[2] = -100.0  # a slope below zero takes the mask for a score: -inf or True hide, a number does not
    for need_weights in (True, False):
        out, weights, _, _ = run(module, query, key, attn_mask=lowest, need_weights=need_weights)
        if weights is not None and kind in ("relu", "rela-i", "rela-g", "relu2+rms"):
            assert not weights[:, 2].any()
            assert torch.equal(out[:, 2], module.out_proj.bias.expand(B, C))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_causal_queries_before_the_first_key(kind: str, dtype: torch.dtype):
    """Sequences end together, so with T - S more queries than keys the first ones see nothing."""
    module = attention(kind, C, H, dtype)
    query, key = normal(B, S, C, seed=1, dtype=dtype), normal(B, T, C, seed=2, dtype=dtype)
    for need_weights in (True, False):
        out, _, d_query, _ = run(module, query, key, is_causal=True, need_weights=need_weights)
        assert torch.equal(out[:, : S - T], module.out_proj.bias.expand(B, S - T, C))
        assert not d_query[:, : S - T].any()
        assert d_query[:, S - T + 1 :].any()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if rela.PRESETS.get(kind, rela.Kind("gelu")).weights == "relu"]
)
def test_null_attention(kind: str, dtype: torch.dtype):
    """Every key points away from query 2, so it attends to nothing: bias out, no gradient in; the others live on."""
    module = attention(kind, C, H, dtype)
    with torch.no_grad():
        module.in_proj_bias.zero_()
        module.in_proj_weight[C : 2 * C] = module.in_proj_weight[:C]  # keys are projected as queries are
    direction = normal(C, seed=3, dtype=dtype)
    key = direction * torch.linspace(0.5, 2.0, S)[:, None].to(dtype)
    query = torch.stack([normal(C, seed=4, dtype=dtype), direction, -direction])
    out, weights, d_query, _ = run(module, query[None], key[None])
    assert not weights[0, 2].any()
    assert weights[0, 1].all()
    assert torch.equal(out[0, 2], module.out_proj.bias)
    assert not d_query[0, 2].any()
    assert d_query[0, 1].any() or "rela-i" in kind or "relu-rms" in kind  # along its direction a norm has no slope
    assert rela.null_rate(module(query[None], key[None], key[None], average_attn_weights=False)[1]).min() >= 1 / 3


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("norm", [n for n in rela.NORMS if n != "none"])
def test_the_norm_of_nothing_is_nothing(norm: str, dtype: torch.dtype):
    from rela.attention.norms import make_norm

    module = make_norm(norm, C, dtype=dtype)
    z = torch.zeros(4, C, dtype=dtype)
    z[1] = normal(C, dtype=dtype)
    z.requires_grad_()
    out = module(z)
    out.sum().backward()
    assert not out[[0, 2, 3]].any()
    assert out[1].any()
    assert z.grad.isfinite().all()
    assert module.gain.grad.isfinite().all()


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_no_keys_at_all(weights: str, backend: str):
    """S = 0: an empty source, or the first step of an empty cache."""
    q = normal(2, 4, 3, 5).requires_grad_()
    k = normal(2, 2, 0, 5).requires_grad_()
    out = rela.attend(q, k, k, kind=weights, backend=backend)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(2, 4, 3, 5, dtype=torch.float64))
    assert not q.grad.any()
    assert rela.attention_weights(q, k, kind=weights).shape == (2, 4, 3, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_empty_inputs(kind: str, batch: int, queries: int, keys: int):
    module = attention(kind, C, H)
    key = normal(batch, keys, C)
    out, weights = module(normal(batch, queries, C), key, key)
    assert out.shape == (batch, queries, C)
    assert weights.shape == (batch, queries, keys)
    assert torch.equal(module(normal(batch, queries, C), key, key, need_weights=False)[0], out)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_key_lengths_of_zero(weights: str):
    q, k, v = (normal(3, 2, 4, 5, seed=seed).requires_grad_() for seed in range(3))
    out = rela.attend(q, k, v, kind=weights, key_lengths=torch.tensor([0, 4, 1]))
    out.square().sum().backward()
    assert not out[0].any()
    assert out[1].any()
    for tensor in (q, k, v):
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[0].any()
    assert not k.grad[2, :, 1:].any()
    assert not v.grad[2, :, 1:].any()


def test_rates_count_only_where_a_query_may_look():
    weights = torch.tensor([[[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[2.0, 1.0, 1.0], [0.0, 0.0, 3.0]]]])
    assert rela.sparsity_rate(weights).tolist() == pytest.approx([5 / 6, 2 / 6])
    assert rela.null_rate(weights).tolist() == [0.5, 0.0]
    allowed = torch.tensor([[False, False, False], [True, True, False]])
    assert rela.sparsity_rate(weights, allowed).tolist() == [0.5, 1.0]
    assert rela.null_rate(weights, allowed).tolist() == [0.0, 1.0]
    assert rela.null_rate(weights, torch.zeros(2, 3, dtype=torch.bool)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("weights", RECTIFYING)
def test_distributions_never_attend_to_nothing_and_rectifiers_do(weights: str):
    q, k = normal(4, 2, 6, 3), normal(4, 2, 2, 3, seed=1)
    assert rela.null_rate(rela.attention_weights(q, k, kind=weights)).min() > 0
    for distribution in ("softmax", "sparsemax", "entmax15", "topk:3"):
        assert rela.null_rate(rela.attention_weights(q, k, kind=distribution)).max() == 0
