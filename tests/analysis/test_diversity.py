"""Head diversity: 0 for heads that agree, log H for heads that share nothing, and the null row on its dummy key."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.analysis.diversity import as_distributions, diversity_of_queries, head_diversity, jensen_shannon


@pytest.mark.parametrize("kind", ["softmax", "sparsemax", "entmax:1.3", "rela-g", "relu", "rela-g-gelu"])
@pytest.mark.parametrize("type", ["encoder", "decoder"])
def test_identical_heads_have_no_diversity(random_record, make_record, kind, type):
    one = random_record(2, "softmax" if "max" in kind else kind, type, heads=1, queries=6, keys=6)
    record = make_record(one.weights.expand(-1, 4, -1, -1), kind, type)
    torch.testing.assert_close(head_diversity(record), torch.zeros(3, dtype=torch.float64))


@given(st.integers(1, 7), st.integers(1, 4))
def test_disjoint_heads_differ_by_log_of_their_number(make_record, heads, rows):
    weights = torch.eye(heads)[:, None].expand(heads, rows, heads)[None]  # head h looks at key h only
    diversity = head_diversity(make_record(weights, kind="softmax"))
    assert diversity.item() == pytest.approx(math.log(heads), abs=1e-12)


def test_two_heads_by_hand(make_record):
    record = make_record([[[[1.0, 0.0]], [[0.5, 0.5]]]], kind="sparsemax")
    mixed = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert head_diversity(record).item() == pytest.approx(mixed - 0.5 * math.log(2))


def test_rela_is_normalised_by_softmax_of_its_powers(make_record):
    record = make_record([[[[4.0, 0.0, 1.0]]]])
    for temperature in (1.0, 0.5):
        exponentials = [math.exp(weight**temperature) for weight in (4.0, 0.0, 1.0)]
        expected = [value / sum(exponentials) for value in exponentials] + [0.0]
        assert as_distributions(record, temperature)[0, 0, 0].tolist() == pytest.approx(expected)


def test_a_null_row_is_one_hot_on_the_dummy(make_record):
    record = make_record([[[[0.0, 0.0]], [[2.0, 0.0]]]])
    rows = as_distributions(record)[0, :, 0]
    assert rows[0].tolist() == [0.0, 0.0, 1.0]
    # the heads share no key: E(mix) = log 2 + E(p₂)/2, less the mean entropy E(p₂)/2
    assert head_diversity(record).item() == pytest.approx(math.log(2))


def test_null_heads_agree_with_each_other(make_record):
    assert head_diversity(make_record(torch.zeros(1, 4, 3, 5))).item() == 0.0


def test_later_keys_get_nothing_in_the_decoder(random_record):
    record = random_record(3, "rela-g", "decoder", queries=6, keys=6)
    beyond = as_distributions(record)[..., :-1].masked_select(~record.allowed)
    assert torch.equal(beyond, torch.zeros_like(beyond))


@pytest.mark.parametrize("kind", ["softmax", "rela-g", "rela-g-leaky"])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.1])
def test_every_row_is_a_distribution_and_diversity_is_bounded(random_record, kind, temperature):
    record = random_record(4, kind)
    if kind == "rela-g-leaky":
        record.weights[:, :, ::2, ::2] = -0.3
    rows = as_distributions(record, temperature)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    diversity = diversity_of_queries(record, temperature)
    assert diversity.shape == (3, 7)
    assert ((diversity >= 0) & (diversity <= math.log(5) + 1e-12)).all()


def test_the_order_of_heads_does_not_matter(random_record, make_record):
    record = random_record(5)
    torch.testing.assert_close(head_diversity(make_record(record.weights.flip(1))), head_diversity(record))


def test_jensen_shannon_is_half_the_symmetrised_divergence_to_the_mixture():
    p, q = torch.rand(2, 9, dtype=torch.float64).softmax(-1)
    mixture = (p + q) / 2
    expected = 0.5 * (p * (p / mixture).log()).sum() + 0.5 * (q * (q / mixture).log()).sum()
    torch.testing.assert_close(jensen_shannon(torch.stack([p, q])), expected)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_of_zero_or_less_is_refused(random_record, temperature):
    with pytest.raises(ValueError, match="temperature is"):
        head_diversity(random_record(6), temperature)
