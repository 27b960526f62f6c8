"""Alignment error rate and symmetrisation: hand-drawn examples and what must hold for any links."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.evaluation.alignment import (
    AlignmentCounts,
    AlignmentScore,
    GoldLinks,
    alignment_error_rate,
    alignment_interval,
    percentile,
    read_hypotheses,
    read_links,
)

LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)
GOLD = st.tuples(LINKS, LINKS).map(lambda pair: GoldLinks(pair[0], pair[0] | pair[1]))


def test_error_rate_by_hand():
    gold = [
        GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)})),
        GoldLinks(frozenset({(0, 1)}), frozenset({(0, 1)})),
    ]
    hypotheses = [frozenset({(0, 0), (2, 1), (2, 2)}), frozenset({(0, 1)})]
    # |A| = 4, |S| = 3, |A∩S| = 2, |A∩P| = 3
    score = alignment_error_rate(hypotheses, gold)
    assert score.aer == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)
    assert score.links == 4


@given(st.lists(GOLD, min_size=1, max_size=4))
def test_gold_has_no_error(gold):
    assert alignment_error_rate([sentence.sure for sentence in gold], gold).aer == 0


@given(st.lists(st.tuples(LINKS, GOLD), min_size=1, max_size=4))
def test_every_rate_is_a_fraction(pairs):
    hypotheses, gold = zip(*pairs, strict=True)
    score = alignment_error_rate(hypotheses, gold)
    for rate in (score.aer, score.precision, score.recall):
        assert 0 <= rate <= 1


@given(LINKS, LINKS)
def test_without_possible_links_the_error_rate_is_one_minus_f1(hypothesis, sure):
    score = alignment_error_rate([hypothesis], [GoldLinks(sure, sure)])
    if score.precision + score.recall == 0:
        assert score.aer == 1
    else:
        f1 = 2 * score.precision * score.recall / (score.precision + score.recall)
        assert score.aer == pytest.approx(1 - f1)


@given(st.lists(st.tuples(LINKS, GOLD), min_size=2, max_size=4))
def test_counts_of_sentences_add_up(pairs):
    hypotheses, gold = zip(*pairs, strict=True)
    total = sum((AlignmentCounts.of(*pair) for pair in pairs), AlignmentCounts())
    assert total.score() == alignment_error_rate(hypotheses, gold)


def test_unequal_files_are_an_error_with_the_sentence():
    gold = GoldLinks(frozenset(), frozenset())
    with pytest.raises(ValueError, match="sentence 2 has no gold links"):
        alignment_error_rate([frozenset(), frozenset()], [gold])
    with pytest.raises(ValueError, match="sentence 1 has no hypothesis"):
        alignment_error_rate([], [gold])


def test_a_sure_link_must_be_possible():
    with pytest.raises(ValueError, match=r"\(1, 2\) is not"):
        GoldLinks(frozenset({(1, 2)}), frozenset())


@pytest.mark.skipif("RELA_GOLD" not in os.environ, reason="RELA_GOLD names no folder with rwth-odd.talp")
@pytest.mark.parametrize(
    ("hypothesis", "figures"), [("giza-gdf", (21.64, 90.41, 68.96)), ("fastalign-gdf", (28.67, 79.51, 64.57))]
)
def test_published_hypotheses_give_their_published_figures(hypothesis, figures):
    folder = Path(os.environ["RELA_GOLD"])
    gold = read_links(folder / "rwth-odd.talp", one_based=True)
    score = alignment_error_rate(read_hypotheses(folder / f"rwth-odd.{hypothesis}.hyp"), gold)
    assert tuple(round(100 * rate, 2) for rate in (score.aer, score.precision, score.recall)) == figures


def test_the_interval_of_a_corpus_of_equal_sentences_is_a_point():
    gold = GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))
    links = frozenset({(0, 0), (1, 0)})
    rate = alignment_error_rate([links] * 9, [gold] * 9).aer
    assert alignment_interval([links] * 9, [gold] * 9, 50) == (rate, rate)


def test_the_interval_of_one_sentence_is_its_error_rate():
    """One of two sure links found: 1 - (1 + 1) / (1 + 2)."""
    sure = frozenset({(0, 0), (1, 1)})
    low, high = alignment_interval([frozenset({(0, 0)})], [GoldLinks(sure, sure)], resamples=20)
    assert low == high == pytest.approx(1 / 3)


def test_without_sentences_there_is_no_error_rate():
    with pytest.raises(ValueError, match="there is no sentence to judge"):
        alignment_error_rate([], [])


def test_the_interval_is_that_of_the_binomial_where_sentences_are_right_or_wrong():
    """Of n sentences with one link each, k wrong, the AER is k / n; its deviation is √(p (1 − p) / n)."""
    gold = GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0)}))
    right, wrong = frozenset({(0, 0)}), frozenset({(0, 1)})
    low, high = alignment_interval([right] * 300 + [wrong] * 100, [gold] * 400, 1000)
    spread = 1.96 * (0.25 * 0.75 / 400) ** 0.5
    assert low == pytest.approx(0.25 - spread, abs=0.01)
    assert high == pytest.approx(0.25 + spread, abs=0.01)
    with pytest.raises(ValueError, match="resamples is 0"):
        alignment_interval([right], [gold], 0)


def test_a_score_is_shown_in_percent():
    assert str(AlignmentScore(0.25, 0.5, 1.0, 7)) == "AER 25.00  precision 50.00  recall 100.00  links 7"


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.0, 1.0), (0.25, 2.0), (0.375, 3.0), (0.5, 4.0), (0.875, 12.0), (1.0, 16.0)]
)
def test_percentiles_lie_between_two_values_in_proportion(share, wanted):
    assert percentile([1.0, 2.0, 4.0, 8.0, 16.0], share) == wanted
