"""Training that has failed is noticed: a loss that is no number, and a loss no better than word frequencies."""

from __future__ import annotations

import math

import pytest
import torch

from rela.training.watchdog import TrainingFailed, Watchdog


def watchdog(patience: int = 100) -> Watchdog:
    dog = Watchdog(6, patience)
    dog.count(torch.tensor([0, 0, 1, 1, 2, 3, 1, 1]))  # PAD twice; then shares 4/6, 1/6, 1/6
    return dog


ENTROPY = -(4 / 6 * math.log(4 / 6) + 2 / 6 * math.log(1 / 6))


def test_the_unigram_entropy_counts_no_padding():
    assert watchdog().unigram_entropy() == pytest.approx(ENTROPY)
    dog = watchdog()
    dog.count(torch.tensor([0, 0, 0]))
    assert dog.unigram_entropy() == pytest.approx(ENTROPY)


@pytest.mark.parametrize("nll", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_said_at_once(nll):
    with pytest.raises(TrainingFailed, match=r"at step 1; lower train\.learning_rate"):
        watchdog().check(1, nll)


def test_a_loss_at_the_entropy_of_the_words_is_said_when_patience_is_over():
    dog = watchdog(100)
    for step in range(10, 100, 10):
        dog.check(step, 1.01 * ENTROPY)
    with pytest.raises(TrainingFailed, match=r"after 100 steps .* guessing by word frequency .*rela-g") as caught:
        dog.check(100, 1.01 * ENTROPY)
    assert "\n" not in str(caught.value)


def test_a_loss_that_was_better_once_is_no_failure():
    dog = watchdog(100)
    dog.check(10, 0.9 * ENTROPY)
    dog.check(100, 1.5 * ENTROPY)
    dog.check(5000, 1.5 * ENTROPY)


def test_the_boundary_is_three_percent_below_the_entropy():
    watchdog(100).check(100, 0.969 * ENTROPY)
    with pytest.raises(TrainingFailed):
        watchdog(100).check(100, 0.971 * ENTROPY)
