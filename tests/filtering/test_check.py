"""Checked pairs: in order, with every word, and with the verdicts of the thresholds."""

import json
import math
from dataclasses import replace

import pytest

from rela.alignment.joint import JOINT, save_joint
from rela.filtering.calibration import calibrate
from rela.filtering.check import Checker
from rela.filtering.detector import DETECTOR, save_detectors
from tests.filtering.corpora import TRUSTED
from tests.tiny_models import BACK, HEADS, LAYERS, tiny_folder, tiny_joint, tiny_translator, toy_pairs

PAIRS = toy_pairs(6, seed=3)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of opposite directions, calibrated on forty pairs."""
    folder = tmp_path_factory.mktemp("models")
    there, back = tiny_folder(folder / "there"), tiny_folder(folder / "back", seed=2, languages=BACK)
    save_detectors(folder / "there", calibrate(there, back, toy_pairs(40, seed=11)))
    return there, back


@pytest.mark.parametrize("reverse", [False, True])
def test_every_pair_has_a_score_and_every_word_its_numbers(models, reverse):
    checker = Checker(models[0], models[1] if reverse else None)
    pairs = [PAIRS[0], ("", "x"), ("zu lang " * 100, "x"), *PAIRS[1:]]
    found = list(checker.check(iter(pairs)))
    assert [check.line for check in found] == list(range(1, len(pairs) + 1))
    assert [check.problem for check in found[:4]] == ["", "empty", "too long for the model", ""]
    assert found[1].score is None
    for check in (found[0], *found[3:]):
        assert 0 <= check.score <= 1
        assert check.verdict in ("ok", "notice", "warn")
        assert [word.word for word in check.source_words] == check.source.split()
        assert [word.word for word in check.target_words] == check.target.split()
        assert (len(check.null_by_head), len(check.null_by_head[0])) == (LAYERS, HEADS)
        assert sum(word.log_prob for word in check.target_words) > check.log_prob * 100
        assert (check.reverse is None) == (not reverse)
        assert all((word.null is None) == (not reverse) for word in check.source_words)
        row = json.loads(json.dumps(check.row(), allow_nan=False))
        assert row["score"] == check.score
    assert list(checker.check(pairs)) == found


def test_a_word_is_written_as_in_the_text_even_if_the_model_does_not_know_it(models):
    source, target = "ein 日本 Hund 😀", "a dog\u00a0▁ naïve☃"
    (check,) = Checker(*models).check([(source, target)])
    assert [word.word for word in check.source_words] == source.split()
    assert [word.word for word in check.target_words] == target.split()


def test_verdicts_follow_the_thresholds(models):
    checker = Checker(models[0])
    limits = checker.detector.thresholds
    assert checker.verdict(limits["warn"] + 1e-9, PAIRS[0]) == "warn"
    assert checker.verdict(limits["warn"], PAIRS[0]) == ("notice" if limits["warn"] > limits["notice"] else "ok")
    assert checker.verdict(limits["notice"], PAIRS[0]) == "ok"
    flagged = [word.flagged for check in checker.check(toy_pairs(40, seed=11)) for word in check.target_words]
    assert sum(flagged) <= len(flagged) / 100 + 1, "one trusted word in a hundred"


def test_words_are_flagged_by_what_they_lack_or_by_null_rows_as_older_detectors_do(models):
    checker = Checker(models[0])
    words = [word for check in checker.check(PAIRS) for word in check.target_words]
    for name, values in (("lacking", [w.lacking for w in words]), ("null", [w.null for w in words])):
        limit = sorted(values)[len(values) // 2]
        checker.detector = replace(checker.detector, words={name: limit, "attention": 0.0})
        found = [word.flagged for check in checker.check(PAIRS) for word in check.target_words]
        assert found == [value > limit for value in values]


def test_without_the_aligner_of_the_calibration_words_are_flagged_by_what_they_lack(tmp_path):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    save_joint(tiny_joint(there, back))
    detectors = calibrate(there, back, TRUSTED)
    save_detectors(tmp_path / "there", detectors)
    limits = detectors["both"].words
    assert (detectors["alone"].aligner, len(detectors["both"].aligner)) == ("", 64)

    def check_words(links: bool) -> None:
        """Both sides of every pair, by the limits of the trusted words."""
        checker = Checker(there, back)
        assert (checker.aligner is not None) == links
        by = "missing" if links else "lacking"
        for check in checker.check(TRUSTED):
            for prefix, words in (("", check.target_words), ("reverse ", check.source_words)):
                assert all((word.link is not None) == (word.missing is not None) == links for word in words)
                assert [word.flagged for word in words] == [getattr(word, by) > limits[prefix + by] for word in words]

    check_words(links=True)
    save_joint(tiny_joint(there, back, seed=4))
    check_words(links=False)
    save_joint(tiny_joint(there, tiny_folder(tmp_path / "third", seed=3, languages=BACK)))
    check_words(links=False)
    (tmp_path / "back" / JOINT).unlink()
    check_words(links=False)
    alone = next(Checker(there).check(TRUSTED))
    assert [word.flagged for word in alone.target_words] == [w.lacking > limits["lacking"] for w in alone.target_words]
    assert [word.flagged for word in alone.source_words] == [
        word.attention < limits["attention"] for word in alone.source_words
    ]


def test_a_check_json_from_before_links_flags_words_as_it_did(tmp_path):
    """Target words by what they lack, source words by the null rates of the reverse model."""
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    save_joint(tiny_joint(there, back))
    save_detectors(tmp_path / "there", calibrate(there, back, TRUSTED))
    path = tmp_path / "there" / DETECTOR
    values = json.loads(path.read_text())
    for detector in values.values():
        detector["words"] = {"lacking": 0.5, "null": 0.4, "attention": 0.3, "reverse null": 0.2}
        del detector["aligner"]
    path.write_text(json.dumps(values))
    checker = Checker(there, back)
    assert checker.aligner is None
    flagged = []
    for check in checker.check(TRUSTED):
        assert [word.flagged for word in check.target_words] == [word.lacking > 0.5 for word in check.target_words]
        assert [word.flagged for word in check.source_words] == [word.null > 0.2 for word in check.source_words]
        flagged += [word.flagged for word in check.source_words + check.target_words]
    assert 0 < sum(flagged) < len(flagged)


@pytest.mark.parametrize(
    ("source", "target", "alone"),
    [
        ("12", "12", True),
        (" 12\u00a0% ", "12 %", True),
        ("!!!", "!!!", True),
        ("12 %", "12%", True),
        ("1 2", "12", False),
        ("\U0001f600", "\U0001f600", True),
        ("12", "13", False),
        ("3 m", "3 m", False),
        ("Berlin", "Berlin", False),
        ("中文", "中文", False),
    ],
)
def test_equal_sides_without_a_letter_are_ok_whatever_their_score(models, source, target, alone):
    checker = Checker(models[0])
    worst = checker.detector.thresholds["warn"] + 1e-9
    assert checker.verdict(worst, (source, target)) == ("ok" if alone else "warn")
    assert Checker(tiny_translator()).verdict(worst, (source, target)) == ""


def test_without_a_detector_the_score_is_minus_the_log_probability():
    there, back = tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)
    for check in Checker(there).check(PAIRS):
        assert math.isclose(check.score, -check.log_prob)
        assert check.verdict == ""
        assert not any(word.flagged for word in check.target_words + check.source_words)
    for check in Checker(there, back).check(PAIRS):
        assert math.isclose(check.score, -(check.log_prob + check.reverse["log_prob"]) / 2)
