"""The numbers of single words: what each is made of, whose they are, and which of them flags a word."""

import math

import numpy as np
import pytest
import torch

from rela.alignment.joint import JointAligner, JointModule, save_joint
from rela.filtering.detector import view_both
from rela.filtering.features import lacking
from rela.filtering.words import (
    REVERSE,
    UNLINKED,
    by_word,
    flags,
    lacking_by_word,
    limits_of,
    links_by_word,
    output_numbers,
    shared_aligner,
    source_numbers,
    target_numbers,
)
from tests.tiny_models import BACK, tiny_folder, tiny_joint, tiny_translator, toy_pairs

PAIRS = toy_pairs(6, seed=3)


@pytest.fixture(scope="module")
def models():
    """Two models of opposite directions in memory."""
    return tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)


def views(models, pairs):
    return view_both(*models, pairs, ("ein Hund", "a dog"))


def test_what_a_word_lacks_is_its_own_or_the_mean_of_three(models):
    source, target = PAIRS[0]
    (view,) = views(models, [(source, target)])[0]
    pieces = models[0].subwords.pieces(models[0].subwords.encode(target))
    nats = lacking(view.log_probs[:-1], view.plain[:-1])
    assert nats == pytest.approx(0.6 * view.plain[:-1] - view.log_probs[:-1])
    x = by_word(nats, pieces)
    three = [sum(x[max(i - 1, 0) : i + 2]) / len(x[max(i - 1, 0) : i + 2]) for i in range(len(x))]
    wanted = [max(0.6 * own, mean) for own, mean in zip(x, three, strict=True)]
    assert lacking_by_word(models[0], target, view) == pytest.approx(wanted)


def test_subwords_become_words_by_mean_or_sum():
    pieces = ["▁a", "b", "▁c", "▁d", "e", "f"]
    values = np.array([1.0, 3.0, 5.0, 0.0, 3.0, 6.0])
    assert by_word(values, pieces) == [2.0, 5.0, 3.0]
    assert by_word(values, pieces, total=True) == [4.0, 5.0, 9.0]


def test_the_link_of_a_word_is_the_greatest_share_of_it_in_a_word_of_the_other_side(models):
    """The aligner's own matrices, which come from encoder passes of their own, read entry by entry."""
    aligner = tiny_joint(*models)
    found = links_by_word(aligner, PAIRS, *views(models, PAIRS))
    for (source, target), links, both in zip(PAIRS, found, aligner.two_matrices(PAIRS), strict=True):
        S, T = len(source.split()), len(target.split())
        of_targets, of_sources = (one.tolist() for one in both)  # [T, S] and [S, T]
        assert links[0] == pytest.approx([max(of_sources[s][t] for s in range(S)) for t in range(T)], abs=1e-6)
        assert links[1] == pytest.approx([max(of_targets[t][s] for t in range(T)) for s in range(S)], abs=1e-6)
    values = [value for links in found for side in links for value in side]
    assert min(values) >= 0
    assert 0.05 < max(values) <= 1 + 1e-6
    assert links_by_word(None, PAIRS, *views(models, PAIRS)) == [None] * len(PAIRS)


def test_an_aligner_that_knows_each_word_links_it_and_no_inserted_one():
    """Two models that are the same, and projections that are, too: a copied word is most like itself."""
    there = tiny_translator()
    back = tiny_translator(languages=BACK)
    module = JointModule(24, 24, size=24)
    with torch.no_grad():
        for one in (module.source, module.target):
            one.weight.copy_(6 * torch.eye(24))
            one.bias.zero_()
    words = PAIRS[0][0].split()
    new = "gestern"
    pairs = [(" ".join(words), " ".join(words)), (" ".join(words), " ".join([*words, new]))]
    for pair, (of_target, of_source) in zip(
        pairs, links_by_word(JointAligner(there, back, module), pairs, *views((there, back), pairs)), strict=True
    ):
        assert min(of_source) > 0.5
        assert min(of_target[: len(words)]) > 0.5
        assert of_target[len(words) :] == pytest.approx([0.0] * (len(pair[1].split()) - len(words)), abs=0.2)


def test_words_around_a_no_break_space_have_links_of_their_own(models):
    pairs = [("3\u00a0m \u00ad ein 日本", "3\u202fm a\u00a0dog ▁ x")]
    ((of_target, of_source),) = links_by_word(tiny_joint(*models), pairs, *views(models, pairs))
    assert (len(of_source), len(of_target)) == tuple(len(text.split()) for text in pairs[0])


def test_the_words_of_an_output_have_one_number_made_of_what_they_lack_and_their_links(models):
    pair = PAIRS[1]
    (view,) = views(models, [pair])[0]
    links = [0.25] * len(pair[1].split())
    numbers, alone = output_numbers(models[0], pair[1], view, links), output_numbers(models[0], pair[1], view, None)
    assert list(numbers) == ["missing", "lacking", "null", "log_prob", "link"]
    assert numbers["missing"] == pytest.approx([nats + 0.75 * UNLINKED for nats in numbers["lacking"]])
    assert alone == {name: numbers[name] for name in ("lacking", "null", "log_prob")}
    assert math.fsum(numbers["log_prob"]) == pytest.approx(view.log_probs[:-1].sum())


def test_the_source_is_the_output_of_the_backward_model(models):
    for pair, ours, theirs in zip(PAIRS, *views(models, PAIRS), strict=True):
        links = [0.5] * len(pair[1].split()), [0.25] * len(pair[0].split())
        turned = target_numbers(models[1], (pair[1], pair[0]), theirs, links[::-1])
        numbers = source_numbers(*models, pair, ours, theirs, links)
        attention = numbers.pop("attention")
        assert numbers == {REVERSE + name: values for name, values in turned.items()}
        assert source_numbers(models[0], None, pair, ours, None, None) == {"attention": attention}


def test_a_word_is_flagged_by_the_first_number_that_has_a_limit():
    numbers = {"missing": [1.0, 5.0, 3.0], "lacking": [4.0, 0.0, 3.0], "attention": [0.5, 0.1, 0.3]}
    assert flags(numbers, {"attention": 0.3, "lacking": 3.0, "missing": 3.0}) == [False, True, False]
    assert flags(numbers, {"attention": 0.3, "lacking": 3.0}) == [True, False, False]
    assert flags(numbers, {"attention": 0.3, "null": 0.0}) == [False, True, False]
    assert flags(numbers, {}) == [False] * 3


def test_limits_are_what_a_share_of_the_trusted_words_is_beyond():
    random = np.random.default_rng(1)
    names = ("missing", "log_prob", "link", "attention", REVERSE + "missing", REVERSE + "null")
    trusted = [{name: random.normal(size=n).tolist() for name in names} for n in (60, 1, 139)]
    limits = limits_of(trusted, 0.05)
    assert set(limits) == {"missing", "attention", REVERSE + "missing", REVERSE + "null"}
    for name, limit in limits.items():
        found = [flag for one in trusted for flag in flags({name: one[name]}, {name: limit})]
        assert sum(found) == 10, "5 % of 200"


def test_an_aligner_counts_only_if_both_folders_have_it_from_one_training(tmp_path):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    assert shared_aligner(there, None) is None
    assert shared_aligner(there, back) is None
    save_joint(tiny_joint(there, back))
    assert shared_aligner(there, back) is not None
    third = tiny_folder(tmp_path / "third", seed=3, languages=BACK)
    save_joint(tiny_joint(there, third, seed=4))
    assert shared_aligner(there, back) is None
    assert shared_aligner(there, third) is not None
