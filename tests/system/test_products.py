"""Aligner and detector with models that have learnt something: minutes of training, so not in every run."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from rela.alignment.agreement import choose_alone, choose_together
from rela.alignment.choose import Aligner, choose
from rela.alignment.corpus import align_corpus
from rela.alignment.fit import fit
from rela.alignment.joint_fit import fit_joint
from rela.config import CorpusConfig
from rela.data.prepare import prepare
from rela.decoding.translate import Translator
from rela.demo import demo_config
from rela.evaluation.alignment import GoldLinks, alignment_error_rate
from rela.filtering.calibration import calibrate
from rela.toy import split, write_corpus
from rela.training.trainer import train

pytestmark = pytest.mark.campaign
STEPS = 700


class Trained(NamedTuple):
    """Two models of opposite directions, and pairs with gold links."""

    forward: Translator
    backward: Translator
    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]
    gold: list[GoldLinks]


def texts(pairs: Any) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    parts = split(20_000, 200, 200, 1)
    write_corpus(folder / "corpus", dict(zip(("train", "valid", "test"), parts, strict=True)))
    models = []
    for name, (source, target) in {"en-de": ("en", "de"), "de-en": ("de", "en")}.items():
        config = demo_config(str(folder))
        corpora = {part: CorpusConfig(f"{part}.{source}", f"{part}.{target}") for part in ("train", "valid", "test")}
        data = dataclasses.replace(
            config.data,
            source_language=source,
            target_language=target,
            train=(corpora["train"],),
            valid=corpora["valid"],
            test=corpora["test"],
            directory=str(folder / f"prepared-{name}"),
        )
        steps = dataclasses.replace(config.train, directory=str(folder / name), steps=STEPS, cooldown=350, centring=250)
        prepare(data)
        models.append(Translator.load(train(dataclasses.replace(config, data=data, train=steps), True), "cpu"))
    gold = [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in parts[2]]
    return Trained(*models, texts(parts[0])[:3000], texts(parts[1]), texts(parts[2]), gold)


def test_heads_chosen_without_gold_align_as_well_as_the_best(trained: Trained) -> None:
    best = choose(trained.forward, trained.test, trained.gold).aer
    assert best is not None
    choice = choose_alone(trained.forward, trained.valid)
    found = alignment_error_rate(align_corpus(Aligner(trained.forward, choice), trained.test), trained.gold).aer
    assert found < best + 0.03


def test_two_directions_and_a_trained_aligner_are_better_than_one_head(trained: Trained) -> None:
    choices = choose_together(trained.forward, trained.backward, trained.valid)
    there, back = Aligner(trained.forward, choices[0]), Aligner(trained.backward, choices[1])
    alone, joint = fit(there, trained.train, steps=800).aligner, fit_joint(there, back, trained.train).aligner

    def aer(forward: Any, backward: Any = None, method: str | None = None) -> float:
        return alignment_error_rate(align_corpus(forward, trained.test, backward, method), trained.gold).aer

    heads = {"one": aer(there), "both": aer(there, back), "product": aer(there, back, "product")}
    fitted = {"one": aer(alone), "both": aer(joint), "product": aer(joint, method="product")}
    assert heads["both"] < heads["one"]
    assert heads["product"] < heads["both"]
    assert fitted["one"] < heads["one"]
    assert fitted["both"] < heads["both"]
    assert fitted["product"] < heads["product"]


def test_every_kind_of_noise_is_found(trained: Trained) -> None:
    detectors = calibrate(trained.forward, trained.backward, trained.valid)
    assert min(detectors["both"].auroc.values()) > 0.95
