"""Classes of words, for the null rate after words of each class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rela.data.corpus import read_lines


def simple_class(word: str) -> str:
    """A word's class where no word list or tagger is given: comma, other punctuation, number or word."""
    if word == ",":
        return "comma"
    if not any(letter.isalnum() for letter in word):
        return "punctuation"
    return "number" if any(letter.isdigit() for letter in word) else "word"


def load_word_classes(path: str | Path) -> Callable[[str], str]:
    """A function from a word to its class, from a file of `word TAB class` lines.

    A word that is not listed has the class that `simple_class` gives it.
    """
    classes = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, tab, name = line.partition("\t")
        if line.strip() and not (tab and word and name.strip()):
            raise ValueError(f"{path}, line {number}: wanted word, tab, class; found {line[:40]!r}")
        classes[word] = name.strip()
    return lambda word: classes.get(word) or simple_class(word)
