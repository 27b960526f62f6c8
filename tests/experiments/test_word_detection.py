"""Words without a counterpart: which words the cases label, and AUROC of every number."""

from random import Random

import numpy as np
import pytest

from experiments.word_detection import (
    NOISES,
    inserted,
    main,
    noisy_cases,
    of_sentences,
    replaced,
    shortened_cases,
    word_of_token,
)
from rela.alignment.joint import save_joint
from rela.evaluation.alignment import GoldLinks
from rela.filtering.calibration import calibrate
from rela.filtering.detector import save_detectors
from tests.tiny_models import BACK, tiny_folder, tiny_joint, toy_pairs

PAIRS = toy_pairs(9)


def test_a_word_is_replaced_by_another_one_and_some_are_inserted_in_a_row():
    words, others = ["a", "b", "c"], ["A", "d", "e", "f"]
    for seed in range(30):
        new, places = replaced(words, others, Random(seed))
        assert [i for i in range(3) if new[i] != words[i]] == [*places]
        assert new[places[0]].casefold() != words[places[0]].casefold()
        new, places = inserted(words, others, Random(seed), 2)
        assert [word for i, word in enumerate(new) if i not in places] == words
        assert " ".join(new[i] for i in places) in " ".join(others)
        assert len(places) == 2
    assert replaced(["a"], ["A"], Random(1)) == (["…"], range(1)), "no other word"


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kind", NOISES)
def test_noisy_cases_change_one_side_and_label_each_of_its_words(kind, side):
    for pair, ((source, target), labels) in zip(PAIRS, noisy_cases(PAIRS, side, kind, 1), strict=True):
        made = (source, target)
        assert made[1 - side] == pair[1 - side]
        words = made[side].split()
        assert len(labels) == len(words)
        if kind != "replaced":
            assert [word for word, label in zip(words, labels, strict=True) if not label] == pair[side].split()


def test_a_word_that_lost_all_its_links_is_to_be_found():
    """Four words each linked with its own; the comma belongs to the second word, and its link to none."""
    pair = ("Ja , eins zwei drei vier .", "Yes , one two three four .")
    same = frozenset((i, i) for i in range(7))
    numbers = word_of_token(pair[0].split(), ["Ja,", "eins", "zwei", "drei", "vier."])
    assert numbers == [0, 0, 1, 2, 3, 4, 4]
    found = set()
    for seed in range(20):
        ((source, target), labels), *more = shortened_cases([pair], [GoldLinks(same, same)], 0, 1, seed)
        assert more == []
        assert source == "Ja, eins zwei drei vier."
        assert len(target.split()) == 4
        assert labels.count(True) == 1
        assert labels.count(False) == 4
        assert ["Yes,", "one", "two", "three", "four."][labels.index(True)] not in target.split()
        found.add(labels.index(True))
    assert found == {0, 1, 2, 3, 4}
    both = same | {(3, 4), (6, 2)}  # "zwei" has two words; the full stop's link to a word is left out
    for seed in range(20):
        for (_, target), labels in shortened_cases([pair], [GoldLinks(same, both)], 0, 1, seed):
            assert labels[2] is (None if "two" not in target or "three" not in target else False)
            assert target.split() != ["Yes,", "one", "three", "four."], "no word lost all its links"
    assert shortened_cases([pair], [GoldLinks(same, same)], 1, 8, 1) == [], "too short"


def test_the_auroc_is_over_the_words_of_all_sentences():
    values = [np.array([1.0, 5.0]), np.array([2.0, 3.0, 4.0])]
    bad = [np.array([False, True]), np.array([False, False, True])]
    assert of_sentences(values, bad) == 1.0
    bad[1] = np.array([True, False, False])
    assert of_sentences(values, bad) == pytest.approx(4 / 6), "5 is above all of 1, 3 and 4; 2 is above 1 alone"


def test_both_sides_have_a_row_for_every_number(tmp_path, capsys):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    save_joint(tiny_joint(there, back))
    save_detectors(tmp_path / "there", calibrate(there, back, toy_pairs(24, seed=11)))
    for side, name in enumerate(("en", "de")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    shortest = [min(len(source.split()), len(target.split())) for source, target in PAIRS]
    (tmp_path / "gold").write_text("".join(" ".join(f"{i}-{i}" for i in range(n)) + "\n" for n in shortest))
    text = ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de"), "--resamples", "5", "--device", "cpu"]
    models = ["--forward", str(tmp_path / "there"), "--reverse", str(tmp_path / "back")]
    rows = main([*models, *text, "--skip", "1", "--pairs", "6"])
    names = {"missing", "lacking", "link", "null", "log_prob"}
    for side, wanted in (("target", names), ("source", names | {"attention"})):
        for kind in NOISES:
            found = [row for row in rows if (row["side"], row["what"]) == (side, kind)]
            assert {row["by"] for row in found} == wanted
            assert all(0 <= row["low"] <= row["high"] <= 1 for row in found)
    rows = main([*models, *text, "--gold", str(tmp_path / "gold"), "--output", str(tmp_path / "rows.json")])
    assert {row["what"] for row in rows} >= {"1 left out"}
    assert (tmp_path / "rows.json").stat().st_size > 100
    alone = main([*models[:2], *text])
    assert {row["by"] for row in alone if row["side"] == "source"} == {"attention"}
    capsys.readouterr()
