"""Sentences of a paragraph."""

from __future__ import annotations

import pytest

from rela.markup.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("One dog. Two dogs! Three?  Yes.", ["One dog.", "Two dogs!", "Three?", "Yes."]),
        ("Mr. Smith met Dr. No at 5 p.m. on 3. Mai.", ["Mr. Smith met Dr. No at 5 p.m. on 3. Mai."]),
        ('He said: "Go." Then he went. (Yes.) J. Bach', ['He said: "Go."', "Then he went.", "(Yes.)", "J. Bach"]),
        ("e.g. this vs. that, z.B. Hier", ["e.g. this vs. that, z.B. Hier"]),
        ("no end", ["no end"]),
        ("  \n ", []),
        ("A dog .\nA cat . ", ["A dog .", "A cat ."]),
        ("Version 2.0 is out. Äpfel sind da.", ["Version 2.0 is out.", "Äpfel sind da."]),
    ],
)
def test_sentences(text, wanted):
    assert [text[start:end] for start, end in split_sentences(text)] == wanted
