"""The learning rate against the formula's known values, and the share of centring."""

from __future__ import annotations

import math

import pytest

from rela.training.schedule import centring_share, cooled, cosine, inverse_square_root


def test_the_learning_rate_is_that_of_vaswani_et_al():
    assert inverse_square_root(4000, 512, 4000) == pytest.approx((512 * 4000) ** -0.5)  # the peak, 7.0e-4
    assert inverse_square_root(1, 512, 4000) == pytest.approx(1.7469e-7, rel=1e-4)
    assert inverse_square_root(16_000, 512, 4000) == pytest.approx(inverse_square_root(4000, 512, 4000) / 2)
    rates = [inverse_square_root(step, 64, 10, 2.0) for step in range(1, 41)]
    assert rates.index(max(rates)) == 9
    assert rates[4] == pytest.approx(rates[9] / 2)
    assert max(rates) == pytest.approx(2.0 * 64**-0.5 * 10**-0.5)


def test_a_cosine_has_the_same_warm_up_and_falls_to_zero():
    rates = [cosine(step, 64, 10, 30, 2.0) for step in range(1, 32)]
    assert rates[:10] == [inverse_square_root(step, 64, 10, 2.0) for step in range(1, 11)]
    peak = 2.0 * 64**-0.5 * 10**-0.5
    assert max(rates) == rates[9] == pytest.approx(peak)
    assert rates[16] == pytest.approx(peak / 2 * (1 + math.cos(math.pi * 7 / 21)))
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert 0 < rates[29] < 0.01 * peak
    assert rates[30] == pytest.approx(0.0, abs=1e-12)


def test_a_cooldown_ends_in_a_line_to_zero():
    assert [cooled(step, 10, 0) for step in (1, 10)] == [1.0, 1.0]
    assert [cooled(step, 10, 4) for step in (6, 7, 8, 9, 10)] == [1.0, 1.0, 0.75, 0.5, 0.25]


def test_centring_falls_in_a_line_and_is_over_after_its_steps():
    assert [centring_share(step, 4) for step in (1, 2, 3, 4, 5, 9)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert centring_share(1, 0) == 0.0
