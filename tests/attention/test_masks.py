"""Masks of the functional forms: known answers, and several limits together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.attention.masks import (
    alibi_bias,
    causal_mask,
    combine_masks,
    length_mask,
    split_mask,
    start_mask,
    window_mask,
    with_slopes,
)

CPU = torch.device("cpu")


@given(queries=st.integers(0, 6), keys=st.integers(0, 6))
def test_causal_sequences_end_together(queries: int, keys: int):
    mask = causal_mask(queries, keys)
    assert mask.tolist() == [[s <= t + keys - queries for s in range(keys)] for t in range(queries)]
    if 0 < queries <= keys:
        assert mask[-1].all()


def test_lengths_open_the_first_keys():
    assert length_mask(torch.tensor([0, 2, 3]), 3).tolist() == [
        [[[False] * 3]],
        [[[True, True, False]]],
        [[[True] * 3]],
    ]


def test_starts_hide_the_first_keys():
    assert start_mask(torch.tensor([0, 2, 3]), 3).tolist() == [
        [[[True] * 3]],
        [[[False, False, True]]],
        [[[False] * 3]],
    ]


SIDE = st.none() | st.integers(0, 6)


@given(left=SIDE, right=SIDE, queries=st.integers(0, 5), keys=st.integers(0, 5))
def test_a_window_lies_around_the_own_position(left: int | None, right: int | None, queries: int, keys: int):
    """Queries and keys end together."""
    found = window_mask(left, right, queries, keys, CPU)
    for t in range(queries):
        own = t + keys - queries
        wanted = [(left is None or s >= own - left) and (right is None or s <= own + right) for s in range(keys)]
        assert found[t].tolist() == wanted


def test_a_float_mask_is_a_bias_and_minus_infinity_forbids():
    allowed, bias = split_mask(torch.tensor([0.5, float("-inf"), -2.0]))
    assert allowed.tolist() == [True, False, True]
    assert bias.tolist() == [0.5, 0.0, -2.0]
    assert split_mask(None) == (None, None)
    boolean = torch.tensor([True, False])
    assert split_mask(boolean) == (boolean, None)


@given(
    queries=st.integers(1, 5), keys=st.integers(1, 5), causal=st.booleans(), limited=st.booleans(), masked=st.booleans()
)
def test_every_limit_counts(queries: int, keys: int, causal: bool, limited: bool, masked: bool):
    mask = torch.arange(queries * keys).view(queries, keys) % 3 > 0 if masked else None
    lengths = torch.tensor([keys - 1, keys]) if limited else None
    allowed, bias = combine_masks(mask, lengths, causal, queries, keys, CPU)
    assert bias is None
    assert (allowed is None) == (not (causal or limited or masked))
    if allowed is None:
        return
    full = torch.ones(2, 1, queries, keys, dtype=torch.bool) & allowed
    for b in range(2):
        for t in range(queries):
            for s in range(keys):
                wanted = (mask is None or bool(mask[t, s])) and (not causal or s <= t + keys - queries)
                wanted = wanted and (lengths is None or s < int(lengths[b]))
                assert bool(full[b, 0, t, s]) == wanted


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (5, 2)])
def test_slopes_count_the_distance_to_the_own_position(queries: int, keys: int):
    slopes = torch.tensor([0.5, 0.25])
    bias = alibi_bias(slopes, queries, keys)
    assert bias.shape == (1, 2, queries, keys)
    for t in range(queries):
        for s in range(keys):
            assert torch.equal(bias[0, :, t, s], -slopes * abs(t + keys - queries - s))


def test_slopes_hold_beside_a_mask():
    slopes, hidden = torch.tensor([0.5, 0.25]), torch.tensor([[False, True], [False, False]])
    bias = alibi_bias(slopes, 2, 2)
    assert with_slopes(None, slopes, 2, 2).equal(bias)
    assert with_slopes(~hidden, slopes, 2, 2).equal(bias.masked_fill(hidden, -torch.inf))
    assert with_slopes(hidden.float(), slopes, 2, 2).equal(bias + hidden.float())
