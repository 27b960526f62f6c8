"""The small arithmetic that kernels are launched by."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from rela.kernels.attention.functional import relu_attention
from rela.kernels.attention.problem import ceil_div, drop_below, power_of_2, typical_length
from rela.packing import Packing
from tests.kernels.exactness import draw


@given(a=st.integers(0, 10**6), b=st.integers(1, 999))
def test_division_rounds_up(a: int, b: int):
    assert (ceil_div(a, b) - 1) * b < a <= ceil_div(a, b) * b


@given(n=st.integers(1, 10**6))
def test_the_least_power_of_two_that_is_not_less(n: int):
    power = power_of_2(n)
    assert power.bit_count() == 1
    assert power / 2 < n <= power


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_a_typical_length_is_twice_the_mean_and_at_most_the_longest(lengths: list[int]):
    packing = Packing(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), max(lengths))
    typical = typical_length(sum(lengths), packing)
    assert typical == min(max(lengths), 2 * -(-sum(lengths) // len(lengths)))
    assert sum(length > typical for length in lengths) <= len(lengths) / 2
    assert typical_length(77, None) == 77


@given(dropout=st.floats(0, 1, exclude_max=True))
def test_a_dropout_rate_is_kept_to_half_a_unit_and_never_drops_all(dropout: float):
    units = drop_below(dropout)
    assert 0 <= units < 2**15
    assert abs(units - dropout * 2**15) <= 0.5 or units == 2**15 - 1


def test_a_memo_keeps_no_tensor_of_a_call_alive():
    """Plans outlive calls by far; what they hold on to would never be freed."""
    q, k, v = (draw(1, 2, 9, 16, seed=seed).requires_grad_() for seed in range(3))
    memo: dict = {}
    out = relu_attention(q, k, v, scale=0.25, threshold=draw(2, seed=5).requires_grad_(), memo=memo)
    torch.autograd.grad(out.sum(), (q, k, v))
    assert memo
    watched = [weakref.ref(x) for x in (q, k, v, out)]
    del q, k, v, out
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4
