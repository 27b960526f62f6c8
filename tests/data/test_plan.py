"""Which sentences share a batch: every one once, within the limits, whatever the lengths."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rela.data.plan import fill, plan_by_length, plan_mixed

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60).map(np.array)


@settings(deadline=None)
@given(sizes=SIZES, source=st.integers(9, 40), target=st.integers(9, 40), seed=st.integers(0, 9))
def test_batches_by_length_hold_every_sentence_once_shortest_first(sizes, source, target, seed):
    members = np.random.default_rng(seed).permutation(len(sizes))
    batches = list(plan_by_length(members, sizes, np.array([source, target])))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert all((sizes[batch].sum(0) <= [source, target]).all() for batch in batches)
    totals = sizes[np.concatenate(batches)].sum(1)
    assert (np.diff(totals) >= 0).all()


@settings(deadline=None)
@given(sizes=SIZES, limits=st.tuples(st.integers(9, 60), st.integers(9, 60), st.integers(1, 20)))
def test_mixed_batches_hold_every_sentence_once_within_all_limits(sizes, limits):
    members = np.arange(len(sizes))
    batches = list(plan_mixed(members, sizes, np.array(limits)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert members.tolist() == list(range(len(sizes)))  # the plan does not touch what it was given
    for batch in batches:
        assert (sizes[batch].sum(0) <= limits[:2]).all()
        assert len(batch) <= limits[2]


@settings(deadline=None)
@given(sizes=SIZES)
def test_nothing_that_fits_is_left_beside_a_gap(sizes):
    weight = np.concatenate([sizes, np.ones((len(sizes), 1), np.int64)], axis=1)
    limits = np.array([30, 30, 20])
    chosen = fill(weight, limits)
    gap = limits - weight[chosen].sum(0)
    assert (gap >= 0).all()
    assert not (weight[~chosen] <= gap).all(axis=1).any()
