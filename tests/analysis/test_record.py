"""The record checks its own shape and knows which pairs are allowed."""

import pytest
import torch

from rela.analysis.record import AttentionRecord


def test_only_earlier_keys_are_allowed_in_the_decoder(make_record):
    weights = torch.zeros(1, 2, 3, 3)
    assert make_record(weights, type="decoder").allowed.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert make_record(weights, type="cross").allowed.all()
    assert make_record(weights, type="encoder").allowed.all()


def test_sizes_of_a_record_are_those_of_its_weights(make_record):
    record = make_record(torch.zeros(2, 5, 3, 4))
    assert (record.layers, record.heads, record.allowed.shape) == (2, 5, (3, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "self"}, "attention type is 'self'"),
        ({"weights": torch.zeros(2, 3, 4)}, r"weights have shape \[2, 3, 4\]"),
        ({"queries": ("a", "b")}, r"shape of weights is \[1, 1, 1, 2\]; wanted \[2, 2\]"),
        ({"mask": torch.ones(2, 1)}, r"shape of mask is \[2, 1\]; wanted \[1, 2\]"),
    ],
)
def test_a_record_that_does_not_fit_together_is_refused(change, message):
    good = {"kind": "relu", "type": "cross", "weights": torch.zeros(1, 1, 1, 2), "queries": ("a",), "keys": ("b", "c")}
    with pytest.raises(ValueError, match=message):
        AttentionRecord(**{**good, **change})
