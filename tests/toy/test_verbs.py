"""The verbs: known conjugations, prefixes, auxiliaries, and what they govern."""

import pytest

from rela.toy import german
from rela.toy.verbs import MODALS, VERBS, Verb, verbs_governing

KNOWN = {
    "lesen": "lese liest liest lesen lesen gelesen",
    "anrufen": "rufe rufst ruft rufen rufen angerufen",
    "öffnen": "öffne öffnest öffnet öffnen öffnen geöffnet",
    "schlafen": "schlafe schläfst schläft schlafen schlafen geschlafen",
}


def verb(infinitive: str) -> Verb:
    return next(verb for verb in VERBS if verb.full_infinitive == infinitive)


@pytest.mark.parametrize("infinitive", KNOWN)
def test_known_conjugations(infinitive: str):
    found = verb(infinitive)
    assert [*found.present.values(), found.german_participle] == KNOWN[infinitive].split()


def test_a_separable_prefix_stands_before_infinitive_and_participle():
    for found in VERBS:
        assert found.full_infinitive == found.prefix + found.infinitive
        assert found.german_participle.startswith(found.prefix)
        assert found.infinitive.endswith("n")


def test_motion_forms_its_perfect_with_sein():
    assert verb("kommen").perfect_auxiliary == german.SEIN
    assert verb("lesen").perfect_auxiliary == german.HABEN


def test_verbs_are_found_by_what_they_govern():
    for government in (("acc",), ("dat",), ("dat", "acc")):
        found = verbs_governing(*government)
        assert found
        assert all(item.government == government and "person" in item.subjects for item in found)


def test_modals_that_take_to_say_so():
    assert {" ".join(modal.english) for modal in MODALS if modal.has_to} == {"want", "would like"}
