"""English inflection against the spelling books."""

import pytest

from rela.toy import english


@pytest.mark.parametrize(
    ("word", "plural"), [("dog", "dogs"), ("city", "cities"), ("boy", "boys"), ("box", "boxes"), ("watch", "watches")]
)
def test_plurals(word: str, plural: str):
    assert english.plural(word) == plural


@pytest.mark.parametrize(
    ("verb", "third", "past", "ing"),
    [
        ("play", "plays", "played", "playing"),
        ("carry", "carries", "carried", "carrying"),
        ("dance", "dances", "danced", "dancing"),
        ("plan", "plans", "planned", "planning"),
        ("open", "opens", "opened", "opening"),
        ("wash", "washes", "washed", "washing"),
        ("lie", "lies", "lied", "lying"),
        ("agree", "agrees", "agreed", "agreeing"),
    ],
)
def test_verbs(verb: str, third: str, past: str, ing: str):
    assert (english.third_person(verb), english.past(verb), english.ing(verb)) == (third, past, ing)
    assert english.third_person("go") == "goes"
    assert english.third_person("have") == "has"


@pytest.mark.parametrize(
    ("word", "article"), [("apple", "an"), ("dog", "a"), ("university", "a"), ("useful", "a"), ("Umbrella", "an")]
)
def test_articles(word: str, article: str):
    assert english.indefinite_article(word) == article
