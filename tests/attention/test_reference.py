"""What must not change the answer, over odd sizes: padding, order of keys, a cache, grouping, the form of a mask."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import RECTIFIERS, STEP, WEIGHTS, attention, away_from_kinks, normal

few = settings(deadline=None, max_examples=12)
sizes = {"queries": st.integers(1, 9), "keys": st.integers(1, 11), "seed": st.integers(0, 999)}
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def tensors(batch: int, heads: int, queries: int, keys: int, size: int, seed: int, key_heads: int | None = None):
    q = normal(batch, heads, queries, size, seed=seed)
    k, v = (normal(batch, key_heads or heads, keys, size, seed=seed + n) for n in (1, 2))
    return q, k, v


@few
@given(**sizes, hidden=st.integers(0, 10))
@pytest.mark.parametrize("weights", WEIGHTS)
def test_masked_keys_are_a_shorter_input(weights: str, queries: int, keys: int, seed: int, hidden: int):
    """By a boolean mask, by -inf, and by dropping the keys."""
    q, k, v = tensors(2, 3, queries, keys, 5, seed)
    seen = torch.randperm(keys, generator=torch.Generator().manual_seed(seed)) >= min(hidden, keys - 1)
    shorter = rela.attend(q, k[:, :, seen], v[:, :, seen], kind=weights)
    boolean = rela.attend(q, k, v, kind=weights, mask=seen.expand(queries, keys))
    infinite = torch.zeros(1, keys).double().masked_fill(~seen, float("-inf"))
    assert_close(boolean, shorter, **EXACT)
    assert_close(rela.attend(q, k, v, kind=weights, mask=infinite), shorter, **EXACT)
    assert_close(rela.attend(q, k, v, kind=weights, mask=seen[None, None, None]), shorter, **EXACT)


@few
@given(**sizes, lengths=st.lists(st.integers(0, 11), min_size=3, max_size=3), causal=st.booleans())
@pytest.mark.parametrize("weights", WEIGHTS)
def test_padding_changes_nothing(weights: str, queries: int, keys: int, seed: int, lengths: list[int], causal: bool):
    """Each sentence of a padded batch, whatever the padding holds, is what it is alone."""
    lengths = [min(length, keys) for length in lengths]
    q, k, v = tensors(3, 2, queries, keys, 7, seed)
    together = rela.attend(q, k, v, kind=weights, key_lengths=torch.tensor(lengths), causal=causal)
    for b, length in enumerate(lengths):
        one = slice(b, b + 1)
        # Causal sequences end together before the padding counts: key s is open to query t iff s <= t + S - T.
        mask = rela_causal(queries, keys)[:, :length] if causal else None
        alone = rela.attend(q[one], k[one, :, :length], v[one, :, :length], kind=weights, mask=mask)
        assert_close(together[one], alone, **EXACT)


def rela_causal(queries: int, keys: int) -> torch.Tensor:
    return torch.tensor([[s <= t + keys - queries for s in range(keys)] for t in range(queries)])


@few
@given(**sizes)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_causal_is_the_mask_that_ends_with_the_keys(weights: str, queries: int, keys: int, seed: int):
    q, k, v = tensors(2, 3, queries, keys, 4, seed)
    for backend in ("auto", "reference"):
        causal = rela.attend(q, k, v, kind=weights, causal=True, backend=backend)
        assert_close(causal, rela.attend(q, k, v, kind=weights, mask=rela_causal(queries, keys)), **EXACT)


@few
@given(**sizes)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_keys_with_their_values_have_no_order(weights: str, queries: int, keys: int, seed: int):
    q, k, v = tensors(2, 3, queries, keys, 5, seed)
    order = torch.randperm(keys, generator=torch.Generator().manual_seed(seed))
    mask = normal(queries, keys, seed=seed + 5) > -0.5
    turned = rela.attend(q, k[:, :, order], v[:, :, order], kind=weights, mask=mask[:, order])
    assert_close(turned, rela.attend(q, k, v, kind=weights, mask=mask), **EXACT)


@few
@given(**sizes, groups=st.sampled_from([1, 2, 3, 6]))
@pytest.mark.parametrize("weights", WEIGHTS)
def test_grouped_heads_are_repeated_heads(weights: str, queries: int, keys: int, seed: int, groups: int):
    q, k, v = tensors(2, 6, queries, keys, 5, seed, groups)
    repeated = [x.repeat_interleave(6 // groups, dim=1) for x in (k, v)]
    for causal in (False, True):
        expected = rela.attend(q, *repeated, kind=weights, causal=causal, backend="reference")
        assert_close(rela.attend(q, k, v, kind=weights, causal=causal), expected, **EXACT)


@few
@given(
    **sizes,
    extra=st.sampled_from(["none", "bool", "float", "heads"]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
)
def test_softmax_is_scaled_dot_product_attention(queries: int, keys: int, seed: int, extra: str, causal: bool, scale):
    """Same meaning of every mask as PyTorch's function, where the two align causal sequences alike (T = S)."""
    keys = queries if causal else keys
    q, k, v = tensors(2, 3, queries, keys, 5, seed)
    if extra == "none" or causal:
        mask = None
    elif extra == "float":
        mask = normal(queries, keys, seed=seed + 5)
    else:
        mask = normal(*((2, 3, queries, keys) if extra == "heads" else (queries, keys)), seed=seed + 5) > -1.0
        mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)
    for backend in ("auto", "reference"):
        mine = rela.attend(q, k, v, kind="softmax", mask=mask, causal=causal, scale=scale, backend=backend)
        assert_close(mine, expected, **EXACT)


def test_a_float_mask_is_added_before_the_weights():
    """relu(s + mask): a mask of -1 takes one from every score, and a learned bias gets its gradient."""
    q, k, v = tensors(1, 2, 5, 6, 4, 0)
    bias = normal(1, 2, 5, 6, seed=7).requires_grad_()
    out = rela.attend(q, k, v, kind="relu", mask=bias)
    expected = torch.relu(q @ k.mT / 2 + bias)
    assert_close(out, expected @ v, **EXACT)
    (gradient,) = torch.autograd.grad(out.sum(), bias)
    assert_close(gradient, (expected > 0) * v.sum(-1)[:, :, None])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_float32_mask_beside_half_precision(weights: str, dtype: torch.dtype):
    """PyTorch's function takes it; the scores keep their own type."""
    q, k, v = (x.to(dtype) for x in tensors(1, 2, 5, 6, 4, 0))
    out = rela.attend(q, k, v, kind=weights, mask=normal(5, 6, dtype=torch.float32))
    assert out.dtype == dtype
    assert out.isfinite().all()


@few
@given(**sizes)
@pytest.mark.parametrize("weights", ["softmax", "sparsemax", "relu", "relu2"])
def test_values_may_have_their_own_size(weights: str, queries: int, keys: int, seed: int):
    q, k, _ = tensors(2, 3, queries, keys, 5, seed)
    v = normal(2, 3, keys, 8, seed=seed)
    assert_close(rela.attend(q, k, v, kind=weights), rela.attention_weights(q, k, kind=weights) @ v, **EXACT)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_backends_that_serve_agree(kind: str, backend: str):
    q, k, v = tensors(2, 3, 7, 7, 5, 0)
    weights = rela.attention_weights(q, k, kind=kind, causal=True)
    assert_close(rela.attend(q, k, v, kind=kind, causal=True, backend=backend), weights @ v, **EXACT)


@few
@given(dropout=st.sampled_from([0.1, 0.5]), seed=st.integers(0, 99))
@pytest.mark.parametrize("kind", ["softmax", "relu"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_dropout_keeps_the_mean(kind: str, backend: str, dropout: float, seed: int):
    """With v = 1 the context sums the surviving weights over (1 - p): its mean over rows is that without dropout."""
    torch.manual_seed(seed)
    q, k = torch.ones(1, 4, 500, 2, dtype=torch.float64), torch.ones(1, 4, 40, 2, dtype=torch.float64)
    v = torch.ones(1, 4, 40, 1, dtype=torch.float64)
    plain = rela.attend(q, k, v, kind=kind)
    dropped = rela.attend(q, k, v, kind=kind, dropout=dropout, backend=backend)
    # 2000 rows of 40 kept-or-not weights each; six standard errors of the relative mean.
    error = 6 * (dropout / (1 - dropout) / 40 / 2000) ** 0.5
    assert dropped.mean().item() == pytest.approx(plain.mean().item(), rel=error)
    assert dropped.std() > 0


def test_module_dropout_is_off_in_eval_and_on_in_training():
    module = attention("rela-g", dropout=0.5)
    x = normal(2, 5, 12)
    for need_weights in (True, False):
        assert not torch.equal(*(module.train()(x, x, x, need_weights=need_weights)[0] for _ in range(2)))
        assert torch.equal(*(module.eval()(x, x, x, need_weights=need_weights)[0] for _ in range(2)))


@pytest.mark.parametrize("weights", RECTIFIERS)
def test_attend_and_its_threshold(weights: str):
    q, k, v = (normal(1, 4 if n == 0 else 2, 3, 5, seed=n + 7).requires_grad_() for n in range(3))
    theta = torch.tensor([0.3, -0.2, 0.0, 0.1], dtype=torch.float64, requires_grad=True)
    mask = normal(3, 3, seed=4) > -1.0
    away_from_kinks(scores_of(q, k, theta).detach(), weights, mask)

    def call(q: Tensor, k: Tensor, v: Tensor, theta: Tensor) -> Tensor:
        return rela.attend(q, k, v, kind=weights, threshold=theta, mask=mask)

    assert gradcheck(call, (q, k, v, theta), eps=STEP, atol=1e-6)


def scores_of(q: Tensor, k: Tensor, theta: Tensor) -> Tensor:
    return q @ k.repeat_interleave(2, dim=1).mT * q.size(-1) ** -0.5 - theta[:, None, None]
