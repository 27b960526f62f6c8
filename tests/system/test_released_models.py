"""The models in models/: small, complete, and of use in translating, aligning and checking."""

from __future__ import annotations

from pathlib import Path

import pytest

import rela
from rela.filtering.check import Checker

MODELS = Path(__file__).resolve().parents[2] / "models"
LARGEST = 20_000_000  # bytes of a folder
PAIRS = [
    ("Meine Großmutter hat drei rote Äpfel gekauft.", "My grandmother bought three red apples."),
    ("Der Ausschuss hat den Vorschlag angenommen.", "The committee has adopted the proposal."),
    ("Das Wetter war gestern sehr schlecht.", "The weather was very bad yesterday."),
    ("Wie alt ist dein Bruder?", "How old is your brother?"),
]


@pytest.fixture(scope="module")
def models():
    return {name: rela.load(MODELS / name, "cpu") for name in ("en-de", "de-en")}


@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_a_folder_is_small_and_complete(name):
    files = {path.name: path.stat().st_size for path in (MODELS / name).iterdir()}
    assert sum(files.values()) <= LARGEST
    wanted = {"model.safetensors", "config.yaml", "subwords.model", "alignment.json", "check.json", "README.md"}
    assert wanted | {"aligner_joint.safetensors"} <= {*files}


def test_they_translate(models):
    there = models["en-de"].translate(["How old is your brother?", "The committee has adopted the proposal."])
    back = models["de-en"].translate(["Meine Großmutter hat drei rote Äpfel gekauft."])
    for text, wanted in zip(
        [*there, *back], (["alt", "Bruder"], ["Ausschuss", "Vorschlag"], ["three red apples"]), strict=True
    ):
        assert all(word in text for word in wanted), text


def test_links_join_words_that_translate_each_other(models):
    from rela.alignment.choose import Aligner
    from rela.alignment.corpus import symmetrise_matrices

    there, back = Aligner(models["de-en"]), Aligner(models["en-de"])
    turned = [(target, source) for source, target in PAIRS]
    found = [
        symmetrise_matrices(one, other, "product")
        for one, other in zip(there.matrices(PAIRS), back.matrices(turned), strict=True)
    ]
    # Großmutter–grandmother, drei–three, rote–red; Ausschuss–committee, Vorschlag–proposal
    assert {(1, 1), (3, 3), (4, 4)} <= found[0]
    assert {(1, 1), (4, 5)} <= found[1]


def test_their_trained_aligner_is_found_and_links_punctuation_apart(models):
    from rela.alignment.corpus import align_corpus
    from rela.alignment.joint import load_joint

    aligner = load_joint(models["de-en"], models["en-de"], tokenised=True)
    assert aligner is not None
    pairs = [(source.replace(".", " ."), target.replace(".", " .")) for source, target in PAIRS]
    for (source, target), links in zip(pairs, align_corpus(aligner, pairs), strict=True):
        assert (len(source.split()) - 1, len(target.split()) - 1) in links, "the full stops"
    found = list(align_corpus(aligner, pairs))
    assert {(1, 1), (3, 3), (4, 4)} <= found[0]
    assert {(1, 1), (4, 5)} <= found[1]


def test_wrong_translations_are_told_from_right_ones(models):
    checker = Checker(models["de-en"], models["en-de"])
    assert checker.detector is not None
    shuffled = [(source, target) for (source, _), (_, target) in zip(PAIRS, PAIRS[1:] + PAIRS[:1], strict=True)]
    right, wrong = list(checker.check(PAIRS)), list(checker.check(shuffled))
    assert max(one.score for one in right) < min(one.score for one in wrong)
    assert {one.verdict for one in wrong} == {"warn"}


def test_words_without_a_counterpart_are_flagged_on_both_sides(models):
    """By the calibration and the aligner that the two folders share, in both directions."""
    pairs = [
        ("Der Ausschuss hat den Vorschlag angenommen.", "The committee has adopted the purple proposal."),
        ("Das Wetter war gestern sehr schlecht.", "The weather was very bad."),
    ]
    for forward, backward, german, english in (("de-en", "en-de", 0, 1), ("en-de", "de-en", 1, 0)):
        checker = Checker(models[forward], models[backward])
        assert checker.aligner is not None
        found = [
            [[word.word for word in side if word.flagged] for side in (check.source_words, check.target_words)]
            for check in checker.check((pair[german], pair[english]) for pair in (*pairs, *PAIRS))
        ]
        assert found[0][english] == ["purple"], "a word was inserted, or it was not translated"
        assert found[0][german] == []
        assert found[1][german] == ["gestern"], "a word was left out, or it was added"
        assert found[1][english] == []
        assert found[2:] == [[[], []]] * len(PAIRS), "right translations"
