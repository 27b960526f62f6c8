"""Model cards: the header is YAML, figures are those of the toolkit, and what is not known is said."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
import yaml

from rela.config import CorpusConfig
from rela.evaluation.scores import bleu
from rela.report.card import measure, model_card, vocabulary
from tests.tiny_models import tiny_translator, toy_pairs


def test_a_card_says_what_the_model_is():
    card = model_card(tiny_translator(), "tiny")
    _, header, text = card.split("---\n", 2)
    assert yaml.safe_load(header)["language"] == ["en", "de"]
    assert "# tiny" in text
    assert "2+2 layers, width 24, 2 heads" in text
    assert "attention rela-g" in text
    assert "Not measured" in text
    assert "- not recorded" in text


def test_figures_are_those_of_the_test_text():
    translator, pairs = tiny_translator(), toy_pairs(4)
    measured = measure(translator, pairs, "test.en, test.de")
    translations = translator.translate([source for source, _ in pairs])
    assert measured.scores[0] == bleu(translations, [target for _, target in pairs])
    card = model_card(translator, "tiny", measured)
    assert f"| BLEU | {measured.scores[0].value:.1f} | `{measured.scores[0].signature}` |" in card
    assert f"| cross | {measured.attention['cross'].sparsity.mean():.2f} |" in card
    with pytest.raises(ValueError, match="has no sentence pairs"):
        measure(translator, [], "empty")


def test_the_vocabulary_is_the_one_that_was_learnt():
    config = tiny_translator().config
    separate = replace(config.data, vocabularies="separate", subword_model="unigram")
    given = replace(config.data, subwords="subwords.model")
    assert vocabulary(config) == "A joint SentencePiece BPE vocabulary of 300 pieces"
    each = "A SentencePiece unigram vocabulary of 300 pieces for each language"
    assert vocabulary(replace(config, data=separate)) == each
    assert vocabulary(replace(config, data=given)) == "A joint SentencePiece vocabulary of 300 pieces"


def test_notes_stand_before_the_limits_and_corpora_keep_their_folder():
    translator = copy(tiny_translator())
    train = (CorpusConfig("/somewhere/europarl/train.en", "/somewhere/europarl/train.de"),)
    data = replace(translator.config.data, train=train)
    translator.config = replace(translator.config, data=data)
    card = model_card(translator, "tiny", notes="## Licence\n\nAnybody's.\n")
    assert "- europarl/train.en, europarl/train.de\n" in card
    assert "/somewhere" not in card
    assert card.index("## Licence") < card.index("## Limits")
