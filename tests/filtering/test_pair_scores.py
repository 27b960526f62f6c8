"""Scores of a sentence pair: null rate and log-probability, whatever the batch."""

import pytest
import torch

from rela.analysis.capture import capture
from rela.analysis.nulls import null_rate
from rela.filtering.pair_scores import OUTPUT_ROWS, score_pairs, target_log_probs
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


def test_log_probabilities_of_many_tokens_are_those_of_all_logits_at_once():
    """More tokens than have their logits made at once, the last part smaller than the others."""
    model = tiny_translator().model
    count = 2 * OUTPUT_ROWS["cpu"] + 24
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(count, model.config.width, generator=generator)
    target = torch.randint(model.config.vocabulary_size, (count,), generator=generator)
    with torch.inference_mode():
        wanted = model.logits(hidden).log_softmax(-1)[torch.arange(count), target]
        assert torch.allclose(target_log_probs(model, hidden, target), wanted, rtol=0, atol=1e-5)
