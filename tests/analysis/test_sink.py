"""The share of attention that rests on </s>."""

import pytest
import torch

from rela.analysis.sink import sink_mass, sink_share


def test_sink_mass_of_a_known_record(make_record):
    weights = [[[[1.0, 0.0, 3.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]]  # the last key is </s>; the last row is null
    record = make_record(weights)
    torch.testing.assert_close(sink_share(record)[0, 0], torch.tensor([0.75, 0.0, 0.0], dtype=torch.float64))
    assert sink_mass(record).item() == pytest.approx(0.25)
    assert sink_mass(record, sink="▁x0").item() == pytest.approx((0.25 + 0.5) / 3)
    assert sink_mass(record, sink="<s>").item() == 0.0


def test_softmax_without_preference_leaves_one_part_in_s(make_record):
    record = make_record(torch.zeros(2, 3, 4, 5).softmax(-1), kind="softmax")
    torch.testing.assert_close(sink_mass(record), torch.full((2, 3), 0.2, dtype=torch.float64))


def test_the_scale_of_the_weights_does_not_matter(random_record, make_record):
    record = random_record(1)
    torch.testing.assert_close(sink_mass(make_record(record.weights * 8)), sink_mass(record))
