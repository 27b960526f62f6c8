"""Keys without a share of their sentence's mean: what softmax cannot see, and a rectifier can."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close

import rela
from rela.attention.centring import centre_keys
from rela.packing import Packing
from tests.attention.attention_cases import normal

CU = torch.tensor([0, 3, 3, 7], dtype=torch.int32)  # an empty sentence in the middle
PACKING = Packing(CU, 4)
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def share(value: float) -> torch.Tensor:
    return torch.tensor(value)


def test_a_known_answer():
    keys = torch.tensor([[1.0, 10.0], [3.0, 20.0], [5.0, 7.0], [8.0, 8.0]])
    centred = centre_keys(keys, Packing(torch.tensor([0, 2, 3], dtype=torch.int32), 2), share(0.5))
    assert centred.tolist() == [[0.0, 2.5], [2.0, 12.5], [2.5, 3.5], [8.0, 8.0]]  # filler is left alone


def test_the_whole_mean_leaves_none_and_none_leaves_the_keys():
    keys = normal(9, 5, seed=1)
    assert_close(centre_keys(keys, PACKING, share(0.0)), keys, **EXACT)
    centred = centre_keys(keys, PACKING, share(1.0))
    for part in (slice(0, 3), slice(3, 7)):
        assert_close(centred[part].mean(0), torch.zeros(5, dtype=keys.dtype), **EXACT)
    assert torch.equal(centred[7:], keys[7:])


def test_its_gradient_and_no_keys():
    keys = normal(9, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda k: centre_keys(k, PACKING, share(0.7).double()), keys)
    assert centre_keys(keys[:0], Packing(torch.zeros(2, dtype=torch.int32), 0), share(1.0)).shape == (0, 3)


@pytest.mark.parametrize("kind", ["softmax", "entmax15", "rela-g"])
def test_distributions_do_not_see_it_and_rectifiers_do(kind):
    if kind == "entmax15":
        pytest.importorskip("entmax")
    torch.manual_seed(1)
    attention = rela.MultiheadAttention(12, 3, kind=kind).double()
    x = normal(9, 12, seed=2) + 2.0  # keys with much in common
    plain = attention.forward_packed(x, x, CU, CU, 4, 4)
    attention.centring = share(1.0)
    centred = attention.forward_packed(x, x, CU, CU, 4, 4)
    if kind == "rela-g":
        assert (plain - centred).abs().max() > 0.01
    else:
        assert_close(centred, plain, **EXACT)


def test_causal_attention_is_left_alone():
    """A query would see, in the mean, the keys after it."""
    attention = rela.MultiheadAttention(12, 3, kind="rela-g").double()
    x = normal(9, 12, seed=2)
    plain = attention.forward_packed(x, x, CU, CU, 4, 4, causal=True)
    attention.centring = share(1.0)
    assert torch.equal(attention.forward_packed(x, x, CU, CU, 4, 4, causal=True), plain)


def test_a_copy_has_plain_keys():
    """Its share would stay what it was when the copy was made."""
    attention = rela.MultiheadAttention(12, 3, kind="rela-g").double()
    attention.centring = share(1.0)
    assert copy.deepcopy(attention).centring is None
    assert attention.centring is not None
