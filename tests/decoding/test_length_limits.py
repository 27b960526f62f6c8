"""The longest translation of a source: known answers, and bounds that hold for all settings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rela.decoding.length_limits import longest_translation

LENGTHS = st.integers(0, 500)
SETTINGS = {
    "ratio": st.floats(0, 4),
    "extra": st.floats(0, 60),
    "shortest": LENGTHS,
    "most": st.integers(1, 500),
}


def test_known_answers():
    for source, ratio, extra, shortest, most, expected in (
        (10, 1.5, 10, 0, 255, 25),
        (7, 1.5, 0, 0, 255, 10),  # 10.5 is rounded down
        (100, 0.29, 0, 0, 255, 28),  # 28.999999999999996 in float64; in float32 it is 29
        (1, 0.1, 0, 0, 255, 1),  # one subword at least
        (10, 1.5, 10, 40, 255, 40),  # what the shortest translation asks for
        (200, 1.5, 10, 0, 255, 255),  # what the model has positions for
        (200, 1.5, 10, 300, 255, 255),
    ):
        assert longest_translation(source, ratio, extra, shortest, most) == expected


@given(source=LENGTHS, **SETTINGS)
def test_limits_are_whole_numbers_within_the_bounds(source, ratio, extra, shortest, most):
    limit = longest_translation(source, ratio, extra, shortest, most)
    assert type(limit) is int
    assert min(max(shortest, 1), most) <= limit <= most


@given(source=LENGTHS, more=LENGTHS, **SETTINGS)
def test_a_longer_source_may_have_no_shorter_translation(source, more, ratio, extra, shortest, most):
    rule = ratio, extra, shortest, most
    assert longest_translation(source, *rule) <= longest_translation(source + more, *rule)
