"""The adjectives: known comparatives, and each one makes sense with something."""

import pytest

from rela.toy.adjectives import ADJECTIVES, adjectives_for
from rela.toy.nouns import NOUNS


@pytest.mark.parametrize(
    ("english", "comparative", "german"),
    [("old", ("older",), "älter"), ("expensive", ("more", "expensive"), "teurer"), ("big", ("bigger",), "größer")],
)
def test_known_comparatives(english: str, comparative: tuple[str, ...], german: str):
    (adjective,) = (adjective for adjective in ADJECTIVES if adjective.english == english)
    assert (adjective.comparative, adjective.german_comparative) == (comparative, german)


def test_every_adjective_fits_some_noun_and_only_by_a_common_tag():
    used = set()
    for noun in NOUNS:
        for adjective in adjectives_for(noun):
            assert adjective.tags & noun.tags
            used.add(adjective.english)
    assert used == {adjective.english for adjective in ADJECTIVES}
