"""Sentences are written in the words of the Hansards' gold links."""

import lzma

import pytest

from experiments.hansards_text import english, french, gold, main


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L'avis du ministre, M. Comeau.", "le avis de le ministre , m comeau ."),
        ("Qu’est-ce qu'il veut aujourd'hui ?", "que est - ce que il veut aujourd' hui ?"),
        ("S'il s'agit des prix, jusqu'à 2,5 %", "si il se agit de les prix , jusque à 2,5 %"),
    ],
)
def test_french_contractions_are_written_out(text, words):
    assert french(text) == words


def test_english_hyphens_are_words():
    assert english("The well-known minister's plan can't, and won't.") == (
        "the well - known minister 's plan can not , and wo not ."
    )


def test_gold_sentences_keep_their_number_of_words():
    assert gold("Mr. Speaker , le1er novembre . 2.8") == "mr speaker , le1er novembre . 2.8"


def test_all_parts_are_written(tmp_path):
    texts = {"train": "L'an|A year", "valid": "Au|At", "test": "Du|Of", "hansards": "le an|A year"}
    for name, pair in texts.items():
        for language, text in zip(("fr", "en"), pair.split("|"), strict=True):
            (tmp_path / f"{name}.{language}.xz").write_bytes(lzma.compress(f"{text}\n".encode()))
    main([f"--{name}={tmp_path}" for name in ("corpus", "gold")] + [f"--out={tmp_path / 'out'}"])
    found = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert found["train.fr"] == "le an\n"
    assert found["valid.fr"] == "à le\n"
    assert found["hansards.en"] == "a year\n"
    assert len(found) == 8
