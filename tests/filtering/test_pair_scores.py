"""Scores of a sentence pair: null rate and log-probability, whatever the batch."""

import pytest

from rela.analysis.capture import capture
from rela.analysis.nulls import null_rate
from rela.filtering.pair_scores import score_pairs
from tests.tiny_models import tiny_translator, toy_pairs


@pytest.mark.parametrize("kind", ["rela-g", "softmax", "sparsemax"])
def test_pair_scores_agree_with_the_record_and_with_scoring(kind):
    """A second way to the same numbers: null rate from captured weights, log-probability from Translator.score."""
    model, pairs = tiny_translator(kind), toy_pairs(7)
    pairs.append(("The", "Das"))
    found = score_pairs(model, pairs, batch_tokens=60)
    for score, records in zip(found, capture(model, pairs, ("cross",)), strict=True):
        assert score.null_rate == pytest.approx(null_rate(records["cross"]).mean().item(), abs=1e-12)
    scored = model.score(*map(list, zip(*pairs, strict=True)))
    for score, other in zip(found, scored, strict=True):
        assert score.log_prob == pytest.approx(other.log_prob / len(other.pieces), rel=1e-5)
    assert any(score.null_rate > 0 for score in found) == (kind == "rela-g")


def test_scores_do_not_depend_on_the_company():
    model, pairs = tiny_translator(), toy_pairs(9)
    together = score_pairs(model, pairs)
    assert [score_pairs(model, [pair])[0] for pair in pairs] == together
    assert score_pairs(model, pairs[::-1], batch_tokens=40) == together[::-1]
