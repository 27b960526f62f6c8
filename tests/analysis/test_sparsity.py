"""Sparsity rate: by hand, and zero for softmax."""

import pytest
import torch

from rela.analysis.sparsity import sparsity_rate


def test_sparsity_rate_of_a_known_record(make_record):
    weights = [[[[0.0, 0.5], [0.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]]]]
    assert sparsity_rate(make_record(weights)).tolist() == [[0.75, 0.25]]


def test_pairs_under_the_causal_mask_do_not_count(make_record):
    weights = [[[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]]
    assert sparsity_rate(make_record(weights, type="decoder")).item() == pytest.approx(2 / 6)
    assert sparsity_rate(make_record(weights, type="encoder")).item() == pytest.approx(5 / 9)


@pytest.mark.parametrize("type", ["encoder", "decoder", "cross"])
def test_softmax_is_dense(random_record, type):
    record = random_record(0, "softmax", type, queries=6, keys=6)
    assert torch.equal(sparsity_rate(record), torch.zeros(3, 5, dtype=torch.float64))


def test_negative_zero_is_zero_and_a_tiny_weight_is_not(make_record):
    assert sparsity_rate(make_record([[[[-0.0, 1e-38]]]])).item() == 0.5
