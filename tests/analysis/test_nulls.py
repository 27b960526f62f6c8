"""Null rate, over all rows and by the class of a word."""

import pytest
import torch

from rela.analysis.nulls import NullsByClass, null_rate, null_rate_by_class


def mark(word):
    return "comma" if word == "," else "word"


@pytest.fixture
def record(make_record):
    """Head 0 fires only on the step after the comma and head 1 only within `Hund`."""
    queries = ["▁der", "▁Hu", "nd", "▁,", "▁der", "</s>"]
    weights = torch.zeros(1, 2, 6, 3)
    weights[0, 0, 4, 1] = 0.5
    weights[0, 1, 2, 0] = 2.0
    return make_record(weights, queries=queries)


def test_null_rate_of_a_known_record(record):
    torch.testing.assert_close(null_rate(record), torch.full((1, 2), 5 / 6, dtype=torch.float64))


@pytest.mark.parametrize("type", ["encoder", "decoder", "cross"])
def test_softmax_has_no_null_rows(random_record, type):
    assert (null_rate(random_record(0, "softmax", type, queries=6, keys=6)) == 0).all()


def test_after_a_word(record):
    rates = null_rate_by_class(record, mark)
    assert {name: rate.rows for name, rate in rates.items()} == {"word": 3, "<s>": 1, "comma": 1}
    assert rates["comma"].rate.tolist() == [[0.0, 1.0]]  # the step after the comma
    assert rates["word"].rate.tolist() == [[1.0, 1.0]]  # the step inside `Hund` follows no finished word
    assert next(iter(rates)) == "word"  # the most frequent first


def test_of_the_word_itself(record):
    rates = null_rate_by_class(record, mark, position="current")
    assert {name: rate.rows for name, rate in rates.items()} == {"word": 4, "comma": 1, "</s>": 1}
    assert rates["word"].rate.tolist() == [[0.75, 0.75]]


def test_a_tagger_gives_one_class_a_word(record):
    rates = null_rate_by_class(record, ["DET", "NOUN", "PUNCT", "PRON"])
    assert {name: rate.rows for name, rate in rates.items()} == {"<s>": 1, "DET": 1, "NOUN": 1, "PUNCT": 1, "PRON": 1}
    assert rates["PUNCT"].rate.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="3 classes for 4 words"):
        null_rate_by_class(record, ["DET", "NOUN", "PUNCT"])


def test_a_comma_written_at_its_word_is_a_word(make_record):
    """As in text that is not tokenised: `ja, der` and `ja , der` have the same classes."""
    weights = torch.zeros(1, 1, 4, 2)
    weights[0, 0, 2, 1] = 1.0
    written = make_record(weights, queries=["▁ja", ",", "▁der", "</s>"])
    rates = null_rate_by_class(written, mark)
    assert {name: rate.rows for name, rate in rates.items()} == {"word": 2, "<s>": 1, "comma": 1}
    assert rates["comma"].rate.tolist() == [[0.0]]
    by_tagger = null_rate_by_class(written, ["INTJ", "PUNCT", "DET"])
    assert by_tagger["PUNCT"].rate.tolist() == [[0.0]]
    by_spaces = null_rate_by_class(written, ["INTJ", "DET"])
    assert {name: rate.rows for name, rate in by_spaces.items()} == {"<s>": 1, "INTJ": 1, "DET": 1}
    assert by_spaces["INTJ"].rate.tolist() == [[0.0]]
    with pytest.raises(ValueError, match=r"4 classes for 3 words and punctuation marks \(2 words between spaces\)"):
        null_rate_by_class(written, ["INTJ", "PUNCT", "DET", "NOUN"])


def test_rates_of_several_records_are_counted_together(random_record):
    counts = NullsByClass("current")
    records = [random_record(seed, queries=9, keys=2) for seed in range(3)]
    for record in records:
        counts.add(record, lambda word: "all")
    expected = torch.stack([(record.weights[:, :, :-1] == 0).all(-1) for record in records]).double().mean((0, 3))
    assert counts.rates()["all"].rows == 24
    torch.testing.assert_close(counts.rates()["all"].rate, expected)


def test_unknown_position_is_named(record):
    with pytest.raises(ValueError, match="position is 'next'"):
        null_rate_by_class(record, mark, position="next")
