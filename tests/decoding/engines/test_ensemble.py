"""An ensemble gives each token the mean of its members' probabilities; models that do not fit together are refused."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch

from rela.alignment.online import OnlineLinks
from rela.data.subwords import train_subwords
from rela.decoding.beam import beam_search, length_penalty
from rela.decoding.engines.ensemble import EnsembleEngine
from rela.decoding.translate import Translator
from rela.toy import generate
from tests.decoding.scripted import SPECIAL, Table


def test_search_finds_what_exhaustive_search_finds():
    members = [Table(seed, words=3) for seed in (3, 4, 5)]
    both = Table(0, words=3)
    both.log_probs = lambda prefix: (
        torch.logsumexp(  # type: ignore[method-assign]
            torch.stack([member.log_probs(prefix) for member in members]), 0
        )
        - math.log(3)
    )
    (found,) = beam_search(EnsembleEngine(members), [[0]], torch.tensor([3]), beam=40, special=SPECIAL, alpha=0.6)
    wanted = both.exhaustive(0, 3, 0.6)
    assert [item.tokens for item in found] == [item.tokens for item in wanted[:40]]
    assert found[0].score == pytest.approx(
        wanted[0].log_prob / length_penalty(len(wanted[0].tokens) + 1, 0.6), abs=1e-5
    )


@pytest.fixture(scope="module")
def two(make_translator) -> list[Translator]:
    return [make_translator("rela-g"), make_translator("softmax")]


def test_a_translation_has_the_mean_probability(two, sentences):
    together = Translator.ensemble(two)
    lines = [line for line in sentences[6:9] if line.strip()]
    for precision in ("auto", "int8"):
        for line, (best,) in zip(lines, together.translate_nbest(lines, precision=precision), strict=True):
            if tuple(together.subwords.encode(best.text)) != best.tokens:
                continue
            (scored,) = together.score([line], [best.text], precision=precision)
            assert scored.log_prob == pytest.approx(best.log_prob, abs=2e-3 if precision == "auto" else 0.5)
            parts = [member.score([line], [best.text])[0].log_probs for member in two]
            mean = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*parts, strict=True)]
            if precision == "auto":
                assert scored.log_probs == pytest.approx(mean, abs=1e-4)


def test_the_same_model_twice_is_the_model(two, sentences):
    twice = Translator.ensemble([two[0], two[0]])
    lines = sentences[6:9]
    assert twice.translate(lines) == two[0].translate(lines)
    assert Translator.ensemble([two[0]]) is two[0]
    links = [
        [item.links for (item,) in model.translate_nbest(lines, 1, OnlineLinks(model))] for model in (twice, two[0])
    ]
    assert links[0] == links[1]


def test_what_does_not_fit_together_is_refused(two, tmp_path):
    other = train_subwords((text for pair in generate(300, seed=9) for text in (pair.source, pair.target)), 400)
    stranger = Translator(copy.deepcopy(two[0].model), other, two[0].config, "cpu")
    with pytest.raises(ValueError, match="differ; an ensemble needs one vocabulary"):
        Translator.ensemble([two[0], stranger])
    with pytest.raises(ValueError, match="at least one"):
        Translator.ensemble([])
    together = Translator.ensemble(two)
    with pytest.raises(ValueError, match='"graphs", which cannot serve here: it takes one model, and these are 2'):
        together.translate(["dog"], engine="graphs")
    with pytest.raises(ValueError, match="ensemble of 2 models"):
        together.save(tmp_path / "model")


def test_lengths_are_those_of_the_shortest_model(two, make_translator):
    short = make_translator("rela-g", max_length=40)
    together = Translator.ensemble([two[1], short])
    with pytest.warns(UserWarning, match="only the first 39"):
        (best,) = together.translate_nbest(["dog " * 60], beam=1, max_length_ratio=4.0)[0]
    assert len(best.tokens) <= 39
    assert dataclasses.asdict(together.config)["model"]["max_length"] == 40
