"""What is measured for a report, and what cannot be."""

import pytest

from rela.evaluation.alignment import GoldLinks
from rela.report.measure import choose_examples, load_word_classes, measure, simple_classes
from rela.toy import generate
from tests.tiny_models import tiny_translator, toy_pairs


def gold_of(toy):
    return [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in toy]


@pytest.fixture(scope="module")
def toy():
    return list(generate(8, seed=5))


def test_without_gold_links_there_is_no_alignment():
    report = measure({"m": tiny_translator()}, toy_pairs(3), examples=0, noise={})
    assert report.models["m"].alignment is None
    assert list(report.models["m"].detection) == ["shuffled"]
    assert "figure4_aer" in report.numbers()
    assert report.numbers()["figure4_aer"] == []


def test_gold_links_may_belong_to_other_text(toy):
    report = measure(
        {"m": tiny_translator()}, toy_pairs(3, seed=9), gold_of(toy), examples=1, noise={},
        gold_pairs=[(pair.source, pair.target) for pair in toy],
    )  # fmt: skip
    assert report.models["m"].alignment is not None
    assert report.models["m"].examples[0].gold is None


def test_what_cannot_be_measured_is_said(toy):
    models = {"m": tiny_translator()}
    with pytest.raises(ValueError, match="no model"):
        measure({}, toy_pairs(3))
    with pytest.raises(ValueError, match="1 sentence pairs; at least two"):
        measure(models, toy_pairs(1))
    with pytest.raises(ValueError, match="gold links of 8 sentences for 3 pairs"):
        measure(models, toy_pairs(3), gold_of(toy))
    far = GoldLinks(frozenset({(90, 1)}), frozenset({(90, 1)}))
    with pytest.raises(ValueError, match="sentence 2: gold link 90-1 is outside"):
        measure(models, toy_pairs(2), [GoldLinks(frozenset(), frozenset()), far], noise={})


def test_examples_are_readable_and_always_as_many_as_there_can_be():
    pairs = [("a " * 40, "b " * 40), ("a b c d e f", "a b c d e f"), ("a", "b"), ("a b c d e", "a b c d e")]
    assert choose_examples(pairs, 2, 1) == [1, 3]
    assert choose_examples(pairs, 3, 1) == [1, 2, 3]
    assert choose_examples(pairs, 9, 1) == [0, 1, 2, 3]


def test_word_classes(tmp_path):
    assert [simple_classes(word) for word in (",", ".", "3.5", "Haus", "5-fach")] == ["comma", "punctuation", "number", "word", "number"]  # fmt: skip
    path = tmp_path / "classes.tsv"
    path.write_text("geht\tVERB\nhat\tAUX\n", encoding="utf-8")
    classes = load_word_classes(path)
    assert [classes(word) for word in ("geht", "hat", ",", "Haus")] == ["VERB", "AUX", "comma", "word"]
    path.write_text("geht VERB\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1: wanted word, tab, class"):
        load_word_classes(path)
