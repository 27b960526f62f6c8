"""Classes of words, simple ones and those of a file."""

import pytest

from rela.report.word_classes import load_word_classes, simple_class


def test_simple_classes():
    words = (",", ".", "3.5", "Haus", "5-fach")
    assert [simple_class(word) for word in words] == ["comma", "punctuation", "number", "word", "number"]


def test_classes_of_a_file(tmp_path):
    path = tmp_path / "classes.tsv"
    path.write_text("geht\tVERB\nhat\tAUX\n", encoding="utf-8")
    classes = load_word_classes(path)
    assert [classes(word) for word in ("geht", "hat", ",", "Haus")] == ["VERB", "AUX", "comma", "word"]
    path.write_text("geht VERB\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1: wanted word, tab, class"):
        load_word_classes(path)
