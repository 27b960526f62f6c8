"""The order of pairs by its definition, and criteria that make sense."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rela.filtering.ranking import Criterion, best_first, chosen, rank_values
from rela.filtering.score_store import RECORD

RATES = arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.0, 0.25, 0.5, 0.75]))


@given(RATES, st.data())
def test_orders_by_definition(null_rates, data):
    """Every pair is ranked before each that is worse, and of equals the earlier comes first."""
    scores = np.zeros(len(null_rates), RECORD)
    scores["null_rate"] = null_rates
    scores["log_prob"] = data.draw(arrays(np.float64, len(null_rates), elements=st.sampled_from([-3.0, -2.0, -1.0])))
    scores["problem"] = data.draw(arrays(np.uint8, len(null_rates), elements=st.sampled_from([0, 0, 0, 1])))
    good = [i for i in range(len(scores)) if scores["problem"][i] == 0]
    assert best_first(rank_values(scores, "null-rate")).tolist() == sorted(good, key=lambda i: (null_rates[i], i))
    assert best_first(rank_values(scores, "log-prob")).tolist() == sorted(
        good, key=lambda i: (-scores["log_prob"][i], i)
    )

    def place(i, values):  # mean place from the worst, in pairs, counting itself half
        return sum((values[j] < values[i]) + 0.5 * (values[j] == values[i]) for j in good) + 0.5

    both = rank_values(scores, "both")
    for i in good:
        expected = (place(i, -null_rates) + place(i, scores["log_prob"])) / (2 * len(good))
        assert both[i] == pytest.approx(expected)
    keep = data.draw(st.floats(0, 1))
    order = best_first(both)
    kept = chosen(both, order, Criterion("both", keep=keep))
    assert np.flatnonzero(kept).tolist() == sorted(order[: int(keep * len(good) + 0.5)].tolist())


def test_what_makes_no_sense_is_refused():
    for options, message in [
        ({"by": "length"}, "by is 'length'"),
        ({"keep": 1.5}, "share from 0 to 1"),
        ({"keep": 0.5, "threshold": 0.5}, "wanted one of them"),
        ({"threshold": float("nan")}, "not a number"),
    ]:
        with pytest.raises(ValueError, match=message):
            Criterion(**options)
