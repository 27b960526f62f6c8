"""AUROC against its definition."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.filtering.detection import auroc, auroc_interval, detection, ranks
from rela.filtering.pair_scores import PairScore

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


def by_counting(clean, noisy):
    """The definition: over all couples, how often the noisy one is higher, ties half."""
    wins = sum((bad > good) + 0.5 * (bad == good) for good in clean for bad in noisy)
    return wins / (len(clean) * len(noisy))


def by_area(clean, noisy):
    """The area under the curve itself: true against false positives, threshold by threshold."""
    points = [(0.0, 0.0)]
    for threshold in sorted({*clean, *noisy}, reverse=True):
        points.append((np.mean(np.array(clean) >= threshold), np.mean(np.array(noisy) >= threshold)))
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


def test_auroc_of_known_scores():
    # couples (clean, noisy): (1,2) and (1,3) won, (2,2) tied, (2,3) won: 3.5 of 4
    assert auroc([1, 2], [2, 3]) == 3.5 / 4


@given(SCORES, SCORES)
def test_three_ways_to_one_number(clean, noisy):
    assert auroc(clean, noisy) == pytest.approx(by_counting(clean, noisy), abs=1e-12)
    assert auroc(clean, noisy) == pytest.approx(by_area(clean, noisy), abs=1e-12)


@given(SCORES, SCORES)
def test_turning_the_score_round_turns_the_answer_round(clean, noisy):
    assert auroc([-x for x in clean], [-x for x in noisy]) == pytest.approx(1 - auroc(clean, noisy))


def test_extremes_and_chance():
    assert auroc([1, 2], [3, 4]) == 1
    assert auroc([3, 4], [1, 2]) == 0
    assert auroc([0, 0, 0], [0, 0]) == 0.5


def test_nothing_to_compare_is_said():
    with pytest.raises(ValueError, match="0 clean and 1 noisy"):
        auroc([], [1])
    with pytest.raises(ValueError, match="not a number"):
        auroc([1, float("nan")], [1])


def test_equal_values_share_their_mean_rank():
    assert ranks([5, 1, 5, 3]).tolist() == [3.5, 1, 3.5, 2]


def test_detection_knows_which_way_is_bad():
    clean = [PairScore(0.1, -1.0), PairScore(0.2, -2.0)]
    noisy = [PairScore(0.9, -0.5), PairScore(0.8, -5.0)]
    # places from best to worst: by null rate 1 2 | 4 3, by log-probability 2 3 | 1 4; sums 3 5 | 5 7
    assert detection(clean, noisy) == {"null_rate": 1.0, "log_prob": 0.5, "both": 3.5 / 4}


def test_the_interval_of_auroc_holds_it_and_shrinks_with_more_pairs():
    random = np.random.default_rng(1)
    widths = []
    for count in (50, 800):
        clean, noisy = random.normal(size=count), random.normal(1.0, size=count)
        low, high = auroc_interval(clean, noisy, 200)
        assert low < auroc(clean, noisy) < high
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.3)
    assert auroc_interval([0.0, 1.0], [2.0, 3.0], 20) == (1.0, 1.0)
