"""The nouns: known declensions, and every form that the grammar asks for."""

import pytest

from rela.toy.nouns import NOUNS, nouns_tagged

CASES = ("nom", "acc", "dat", "gen")
# Gender, singular, then plural, each in four cases, from the dictionary.
KNOWN = {
    "dog": "m Hund Hund Hund Hunds Hunde Hunde Hunden Hunde",
    "boy": "m Junge Jungen Jungen Jungen Jungen Jungen Jungen Jungen",
    "woman": "f Frau Frau Frau Frau Frauen Frauen Frauen Frauen",
    "book": "n Buch Buch Buch Buchs Bücher Bücher Büchern Bücher",
    "car": "n Auto Auto Auto Autos Autos Autos Autos Autos",
}


@pytest.mark.parametrize("english", KNOWN)
def test_known_declensions(english: str):
    gender, *forms = KNOWN[english].split()
    (noun,) = (noun for noun in NOUNS if noun.english == (english,))
    assert noun.gender == gender
    assert [noun.german[number][case] for number in "sp" for case in CASES] == forms


def test_every_noun_has_every_form_with_a_capital_letter():
    for noun in NOUNS:
        for number in "sp":
            for case in CASES:
                assert noun.german[number][case][0].isupper(), noun
        assert noun.gender in "mfn"
        assert noun.is_compound == (len(noun.english) > 1)
    assert len({noun.english for noun in NOUNS}) == len(NOUNS)


def test_feminine_nouns_do_not_change_in_the_singular():
    for noun in NOUNS:
        if noun.gender == "f":
            assert len({noun.german["s"][case] for case in CASES}) == 1, noun


def test_the_dative_plural_ends_in_n_or_s():
    assert all(noun.german["p"]["dat"].endswith(("n", "s")) for noun in NOUNS)


def test_tags_choose_nouns():
    people = nouns_tagged("person")
    assert people
    assert all("person" in noun.tags for noun in people)
