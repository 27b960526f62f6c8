"""A text knows its noisy versions, and refuses parts that do not belong together."""

import pytest

from rela.evaluation.alignment import GoldLinks
from rela.filtering.noise import NOISES, make_noise
from rela.report.parallel_text import ParallelText
from tests.tiny_models import toy_pairs

NO_LINKS = GoldLinks(frozenset(), frozenset())


def test_noise_is_made_by_seed():
    text = ParallelText(toy_pairs(4), seed=3)
    assert text.noisy == {kind: make_noise(text.pairs, kind, 3) for kind in NOISES}
    assert text.noisy["shuffled"] is text.shuffled


def test_shuffled_pairs_that_are_given_are_the_shuffled_pairs():
    pairs = toy_pairs(3)
    given = [(source, pairs[(i + 1) % 3][1]) for i, (source, _) in enumerate(pairs)]
    text = ParallelText(pairs, noise={"insertion": given[:2], "shuffled": given})
    assert text.shuffled == given
    assert text.noisy == {"shuffled": given, "insertion": given[:2]}
    assert list(text.noisy) == ["shuffled", "insertion"]


def test_gold_links_belong_to_the_pairs_or_to_others():
    pairs, others = toy_pairs(3), toy_pairs(2, seed=9)
    text = ParallelText(pairs, [NO_LINKS] * 3)
    assert (text.aligned, text.gold_of_pairs) == (pairs, [NO_LINKS] * 3)
    text = ParallelText(pairs, [NO_LINKS] * 2, others)
    assert (text.aligned, text.gold_of_pairs) == (others, None)


def test_unequal_numbers_are_refused():
    with pytest.raises(ValueError, match="gold links of 2 sentences for 3 pairs"):
        ParallelText(toy_pairs(3), [NO_LINKS] * 2)
    with pytest.raises(ValueError, match="2 shuffled pairs for 3 pairs"):
        ParallelText(toy_pairs(3), noise={"shuffled": toy_pairs(2)})
