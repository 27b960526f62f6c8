"""Terms: found as whole words, enforced where the model does not say them, left where it does."""

from __future__ import annotations

import pytest

from rela.markup.glossary import Glossary, without_satisfied
from rela.markup.passages import Passage
from rela.markup.place import place_marks


def enforced(glossary: Glossary, source: str, target: str, links: str) -> str:
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    passage = glossary.mark(Passage(source))
    return place_marks(Passage(passage.text, without_satisfied(passage.marks, target)), target, pairs)


def test_linked_words_are_replaced():
    glossary = Glossary({"machine translation": "maschinelle Übersetzung", "neural": "neuronal"})
    source = "Neural machine translation is fun."
    assert enforced(glossary, source, "Nervöse Maschinenübertragung macht Spaß.", "0-0 1-1 2-1 3-2 4-3") == (
        "neuronal maschinelle Übersetzung macht Spaß."
    )
    right = "neuronal maschinelle Übersetzung macht Spaß."
    assert enforced(glossary, source, right, "0-0 1-1 2-2 3-3 4-4") == right


def test_a_term_without_links_is_inserted():
    assert enforced(Glossary({"dog": "Hund"}), "a dog sleeps", "Ein schläft", "0-0 2-1") == "Ein Hund schläft"
    assert enforced(Glossary({"dog": "Hund"}), "a dog", "", "") == "Hund"


def test_terms_are_whole_words_longest_first_and_by_case():
    glossary = Glossary({"dog": "Hund", "dog house": "Hundehütte", "US": "USA"})
    texts = [
        mark.instead for mark in glossary.mark(Passage("Dogs, the Dog House, dog-like us US dog\u00a0house")).marks
    ]
    assert texts == ["Hundehütte", "Hund", "USA", "Hundehütte"]
    assert Glossary({}).mark(Passage("dog")).marks == ()


def test_files_of_terms(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("\ufeff# comment\ndog\tHund\n\nred  house\trotes Haus\n", encoding="utf-8")
    assert Glossary.load(path).terms == {"dog": "Hund", "red house": "rotes Haus"}
    for line, named in (("dog Hund", "wanted source term, tab"), ("a\tb\tc", "wanted source term"), ("\tb", "wanted")):
        path.write_text(f"x\ty\n{line}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=f"line 2: .*{named}"):
            Glossary.load(path)
    path.write_bytes(b"dog\tH\xfcnd\n")
    with pytest.raises(ValueError, match=r"terms\.tsv is not UTF-8"):
        Glossary.load(path)
    path.write_text("dog\tHund\ndog\tKöter\n", encoding="utf-8")
    with pytest.raises(ValueError, match="'dog' has two translations"):
        Glossary.load(path)
