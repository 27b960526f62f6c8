"""Reranking orders the beam by both directions' scores, and touches nothing else."""

from __future__ import annotations

import pytest

from rela.decoding.beam import length_penalty
from rela.decoding.rerank import Reranker
from tests.tiny_models import tiny_translator


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_scores_are_those_of_both_directions(make_translator, sentences, weight):
    translator, reverse = make_translator(), make_translator("softmax")
    lines = [*sentences[6:9], ""]
    plain = translator.translate_nbest(lines, nbest=4)
    found = translator.translate_nbest(lines, nbest=4, rerank=Reranker(reverse, weight))
    for line, group, before in zip(lines, found, plain, strict=True):
        wanted = []
        for item in before:
            back = reverse.score([item.text], [line])[0]
            back_score = back.log_prob / length_penalty(len(back.pieces), 0.6)
            wanted.append(((1 - weight) * item.score + weight * back_score, item.tokens))
        assert [item.tokens for item in group] == [tokens for _, tokens in sorted(wanted, key=lambda pair: -pair[0])]
        assert [item.score for item in group] == pytest.approx(sorted((s for s, _ in wanted), reverse=True), abs=1e-4)
        assert {item.log_prob for item in group} == {item.log_prob for item in before}
    streamed = translator.translate_stream(iter(lines), window=2, rerank=Reranker(reverse, weight))
    assert [group[0].tokens for group in streamed] == [group[0].tokens for group in found]


def test_a_pair_too_long_for_the_reverse_model_stays_as_it_is(make_translator, sentences):
    translator = make_translator()
    short = tiny_translator(max_length=8)
    with pytest.warns(UserWarning, match="not reranked: the"):
        found = translator.translate_nbest([sentences[5]], nbest=2, rerank=Reranker(short))
    assert found == translator.translate_nbest([sentences[5]], nbest=2)


def test_weights_out_of_range_are_refused(make_translator):
    with pytest.raises(ValueError, match="weight of the reverse model is 2"):
        Reranker(make_translator(), 2)
