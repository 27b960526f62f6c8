"""From two sequences of words to two lines and their links."""

from rela.toy.sentences import end_with, linked, make_sentence
from rela.toy.words import COMMA, Word


def test_a_sentence_gets_its_stop_its_capitals_and_its_links():
    dog, hund = linked("dog", "Hund")
    bark, bellt = linked("barks", "bellt")
    said = make_sentence([Word("the", ("d",)), dog, bark], [Word("der", ("d",)), hund, bellt, Word("ja")])
    assert (said.english, said.german) == ("The dog barks .", "Der Hund bellt ja .")
    assert said.links == ((0, 0), (1, 1), (2, 2), (3, 4))


def test_a_comma_before_the_stop_goes():
    said = make_sentence([Word("yes")], [Word("ja"), COMMA], "?")
    assert said.german == "Ja ?"


def test_another_stop_changes_nothing_else():
    said = make_sentence([Word("yes")], [Word("ja")])
    other = end_with(said, "!")
    assert (other.english, other.german, other.links) == ("Yes !", "Ja !", said.links)
