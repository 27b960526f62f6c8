"""Translating in int8: near float32, independent of the batch, scores that agree with search, and refusals."""

from __future__ import annotations

import pytest
import torch

from rela.config import DecodeConfig, ModelConfig
from rela.decoding.engines.choose import Engines
from rela.model.transformer import Transformer

# Nats a token: an activation near the middle of two steps may fall to the other one where sums have another order.
STEP = 0.05


@pytest.mark.parametrize("kind", ["rela-g", "rela-i", "softmax"])
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_do_not_depend_on_the_batch(make_translator, sentences, kind, beam):
    """Sums of integers are exact, and each row has its own scale: words are the same, and scores to rounding."""
    translator = make_translator(kind)
    options = {"beam": beam, "precision": "int8", "max_length_ratio": 0.4}
    alone = translator.translate_nbest(sentences, batch_tokens=1, **options)
    assert len({group[0].text for group in alone}) > 12, "the model says different things"
    for batch_tokens in (90, 10**6):
        together = translator.translate_nbest(sentences, batch_tokens=batch_tokens, **options)
        for (one,), (other,) in zip(together, alone, strict=True):
            assert one.tokens == other.tokens
            assert one.log_prob == pytest.approx(other.log_prob, abs=STEP * len(other.tokens))


@pytest.mark.parametrize("kind", ["rela-g", "rela-i", "softmax"])
def test_scores_are_near_float32_and_agree_with_search(make_translator, sentences, kind):
    translator = make_translator(kind)
    lines = [line for line in sentences if line.strip()]
    found = translator.translate_nbest(lines, beam=12, nbest=12, precision="int8")
    exact = translator.score(lines, lines[::-1])
    near = translator.score(lines, lines[::-1], precision="int8")
    errors = [
        abs(a - b) for x, y in zip(exact, near, strict=True) for a, b in zip(x.log_probs, y.log_probs, strict=True)
    ]
    spread = torch.tensor([value for item in exact for value in item.log_probs]).std()
    assert 0 < sum(errors) / len(errors) < 0.05 * spread
    compared = 0
    for line, said in zip(lines, found, strict=True):
        for one in said:
            if tuple(translator.subwords.encode(one.text)) == one.tokens:
                (scored,) = translator.score([line], [one.text], precision="int8")
                assert scored.log_prob == pytest.approx(one.log_prob, abs=STEP * len(scored.pieces))
                compared += 1
    assert compared > 0


def test_changed_weights_are_quantised_anew(make_translator):
    translator = make_translator(width=32)
    before = translator.translate_nbest(["The dog sleeps ."], precision="int8")
    with torch.no_grad():
        translator.model.output.weight.neg_()
    assert translator.translate_nbest(["The dog sleeps ."], precision="int8") != before


def test_sampling_works_in_int8(make_translator):
    draws = make_translator().translate_nbest(["The dog sleeps ."], nbest=3, sampling=True, precision="int8")[0]
    assert len(draws) == 3


def test_wrong_precisions_are_refused(make_translator):
    with pytest.raises(ValueError, match=r"precision is 'int4'; wanted .*int8"):
        make_translator().translate(["a"], precision="int4")
    with pytest.raises(ValueError, match=r'engine is "graphs", which cannot serve here: .*int8'):
        make_translator().translate(["a"], precision="int8", engine="graphs")
    with torch.device("meta"):  # which is no CPU
        elsewhere = Transformer(
            ModelConfig(vocabulary_size=16, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8)
        )
    with pytest.raises(ValueError, match='precision is "int8", which cannot serve here: it is for CPUs'):
        Engines(elsewhere).stepwise_engine(DecodeConfig(precision="int8"))
