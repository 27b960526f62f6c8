"""Noise that is what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.filtering.noise import NOISES, derangement, make_noise


@given(st.integers(2, 40), st.integers(0, 99))
def test_a_derangement_leaves_nothing_in_place(count, seed):
    order = derangement(count, seed)
    assert sorted(order) == list(range(count))
    assert all(place != item for place, item in enumerate(order))
    assert order == derangement(count, seed)


def test_noise_of_each_kind():
    pairs = [(f"s{i} x y", f"t{i} a b c d") for i in range(20)]
    made = {kind: make_noise(pairs, kind, 3) for kind in NOISES}
    for kind, noisy in made.items():
        assert [source for source, _ in noisy] == [source for source, _ in pairs]
        assert noisy == make_noise(pairs, kind, 3)
    assert sorted(target for _, target in made["shuffled"]) == sorted(target for _, target in pairs)
    assert all(noisy != pair for noisy, pair in zip(made["shuffled"], pairs, strict=True))
    assert all(source == target for source, target in made["wrong-language"])
    for (_, target), (_, before) in zip(made["insertion"], pairs, strict=True):
        assert before in target
        assert len(target.split()) == 10
    for (_, target), (_, before) in zip(made["omission"], pairs, strict=True):
        words, whole = target.split(), before.split()
        assert len(words) == 3
        assert any(whole[:i] + whole[i + 2 :] == words for i in range(4))
    with pytest.raises(ValueError, match="unknown noise 'typo'"):
        make_noise(pairs, "typo", 1)
