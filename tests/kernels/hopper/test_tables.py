"""What the Hopper kernels look up is what the plain kernels compute."""

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import given, settings
from hypothesis import strategies as st

from rela.kernels.attention.functional import relu_attention
from rela.kernels.attention.problem import Problem
from rela.kernels.hopper.tables import dropout_numbers, intervals
from tests.kernels.exactness import DEVICE, packing_of


def problem(T: int, S: int, queries=None, keys=None, causal=False, dropout=0.0, batch=1) -> Problem:
    q, k = torch.zeros(batch, 2, T, 16, device=DEVICE), torch.zeros(batch, 2, S, 16, device=DEVICE)
    seed = torch.tensor(5, device=DEVICE) if dropout else None
    return Problem(q, k, k, None, None, None, queries, keys, seed, 1.0, "relu", causal, dropout)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
)
def test_intervals_hold_what_is_seen_and_ascend(lengths, filler_q, filler_k, causal):
    queries, keys = packing_of([t for t, _ in lengths]), packing_of([s for _, s in lengths])
    cu_q, cu_k = queries.cu_seqlens, keys.cu_seqlens
    T, S = int(cu_q[-1]) + filler_q, int(cu_k[-1]) + filler_k
    seen = torch.zeros(T, S, dtype=torch.bool, device=DEVICE)
    for i, (t, s) in enumerate(lengths):
        block = torch.ones(t, s, dtype=torch.bool, device=DEVICE)
        seen[cu_q[i] : cu_q[i + 1], cu_k[i] : cu_k[i + 1]] = block.tril(s - t) if causal else block
    packed = problem(T, S, queries, keys, causal)
    for of_keys, wanted in ((False, seen), (True, seen.mT)):
        if wanted.shape[0]:
            first, last = intervals(packed, of_keys)
            other = torch.arange(wanted.shape[1], device=DEVICE)
            assert torch.equal((other >= first[:, None]) & (other < last[:, None]), wanted)
            assert (first <= last).all()
            assert (first.diff() >= 0).all()
            assert (last.diff() >= 0).all()


def test_sequences_that_are_not_packed_need_none():
    assert intervals(problem(5, 6), of_keys=False) is None
    assert dropout_numbers(problem(5, 6)) is None


def test_products_of_the_numbers_decide_as_the_plain_kernel_does():
    B, T, S, rate = 2, 40, 48, 0.3
    of_queries, of_keys = dropout_numbers(problem(T, S, dropout=rate, batch=B))
    assert of_queries.shape == of_keys.shape == (B, 2, 1, 128)
    q = torch.ones(B, 2, T, S, device=DEVICE)
    k = torch.ones(B, 2, S, S, device=DEVICE)
    v = torch.eye(S, device=DEVICE).expand(B, 2, S, S)
    kept = relu_attention(q, k, v, scale=1 / S, dropout=rate, seed=5) != 0
    products = of_queries[:, :, 0, :T, None].long() * of_keys[:, :, 0, None, :S].long()
    assert torch.equal(kept, (products >> 16 & 0x7FFF) >= round(rate * 2**15))
