"""What the Hopper kernels look up is what the plain kernels compute."""

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import given, settings
from hypothesis import strategies as st

from rela.kernels.attention.functional import relu_attention
from rela.kernels.attention.problem import Problem
from rela.kernels.hopper.dispatch import has_descriptor
from rela.kernels.hopper.tables import addressable_bias, dropout_numbers, intervals, mask_words, repeats
from tests.kernels.exactness import DEVICE, draw, packing_of, seen_by


def problem(T: int, S: int, queries=None, keys=None, causal=False, dropout=0.0, batch=1, **limits) -> Problem:
    q, k = torch.zeros(batch, 2, T, 16, device=DEVICE), torch.zeros(batch, 2, S, 16, device=DEVICE)
    seed = torch.tensor(5, device=DEVICE) if dropout else None
    mask, lengths = limits.pop("mask", None), limits.pop("key_lengths", None)
    return Problem(q, k, k, None, lengths, mask, queries, keys, seed, 1.0, "relu", causal, dropout, **limits)


def assert_intervals(made: Problem, seen: torch.Tensor) -> None:
    """The tables of a problem hold what is seen, [B, T, S], and ascend."""
    for of_keys, wanted in ((False, seen), (True, seen.mT)):
        if wanted.shape[1]:
            first, last = intervals(made, of_keys).unbind(1)
            other = torch.arange(wanted.shape[2], device=DEVICE)
            assert torch.equal((other >= first[..., None]) & (other < last[..., None]), wanted)
            assert (first >= 0).all()
            assert (first <= last).all()
            assert (first.diff() >= 0).all()
            assert (last.diff() >= 0).all()


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
    assert_intervals(problem(T, S, queries, keys, causal), seen[None])


SIDES = st.one_of(st.none(), st.integers(0, 30))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 20), st.integers(1, 20), st.booleans(), SIDES, SIDES, st.booleans(), st.booleans(), st.data())
def test_intervals_of_lengths_starts_and_windows(T, S, causal, left, right, lengths, starts, data):
    def limits():
        values = data.draw(st.lists(st.integers(0, S), min_size=2, max_size=2))
        return torch.tensor(values, device=DEVICE)

    given_limits = {"key_lengths": limits() if lengths else None, "key_starts": limits() if starts else None}
    made = problem(T, S, causal=causal, batch=2, left=left, right=right, **given_limits)
    seen = seen_by(made.q, made.k, causal=causal, window=(left, right), **given_limits)
    if intervals(made, of_keys=False) is None:
        assert (left, right, lengths, starts) == (None, None, False, False)
    else:
        assert_intervals(made, seen[:, 0])


@pytest.mark.parametrize(
    ("sizes", "expanded"),
    [((2, 1, 20, 140), False), ((1, 2, 20, 140), True), ((2, 2, 1, 140), False), ((1, 1, 20, 1), True)],
)
def test_words_have_the_bits_of_a_mask_where_a_thread_has_its_columns(sizes, expanded):
    B, H, T, S = 2, 2, 20, 140
    mask = draw(*sizes, seed=3) > 0
    made = problem(T, S, batch=B, mask=mask.expand(B, H, T, S) if expanded else mask)
    full = torch.nn.functional.pad(mask.expand(B, H, T, S), (0, 256 - S, 0, 128 - T))
    step_b, step_h = repeats(made)
    for of_keys, rows, wanted in ((False, T, full), (True, S, full.mT)):
        words = mask_words(made, of_keys)
        assert words.shape[0] == sizes[0] * sizes[1]  # what repeats is kept once
        for b, h in ((0, 0), (0, 1), (1, 0), (1, 1)):
            mine = words[b * step_b + h * step_h]  # [tiles, rows, l]
            j, c = torch.arange(16, device=DEVICE)[:, None, None], torch.arange(2, device=DEVICE)
            bits = mine[:, :, None, :, None] >> (j + 16 * c) & 1  # [tiles, rows, j, l, c]
            got = bits.permute(1, 0, 2, 3, 4).reshape(rows, -1).bool()
            assert torch.equal(got, wanted[b, h, :rows, : got.shape[1]])


@pytest.mark.parametrize("S", [16, 20])
@pytest.mark.parametrize("heads_last", [False, True])
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (2, 2)])
def test_a_bias_is_read_in_steps_of_sixteen_bytes_and_once_where_it_repeats(S, heads_last, sizes):
    bias = draw(*sizes, 5, S, dtype=torch.float16)
    if heads_last:
        bias = bias.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    made = problem(5, S, batch=2, mask=bias.expand(2, 2, 5, S))
    read = addressable_bias(made)
    assert has_descriptor(read)
    assert torch.equal(read, bias)
    assert repeats(made) == (sizes[0] - 1, sizes[1] - 1)
    assert (read.data_ptr() == bias.data_ptr()) == (S % 8 == 0 and not (heads_last and sizes[1] > 1))


def test_sequences_that_are_not_packed_need_none():
    assert intervals(problem(5, 6), of_keys=False) is None
    assert dropout_numbers(problem(5, 6)) is None
    assert mask_words(problem(5, 6), of_keys=False) is None
    assert addressable_bias(problem(5, 6)) is None


def test_the_numbers_of_a_problem_are_made_once():
    dropped = problem(5, 6, dropout=0.3)
    assert dropout_numbers(dropped) is dropout_numbers(dropped)
    assert dropout_numbers(dropped) is dropped.numbers


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
