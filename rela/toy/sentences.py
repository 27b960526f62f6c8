"""Whole sentences: two sequences of words become two lines of text and the links between them."""

from dataclasses import dataclass

from rela.toy.clauses import Predicate, english_question, english_statement, german_question, german_statement
from rela.toy.moments import Moment, clause
from rela.toy.phrases import NounPhrase
from rela.toy.words import Links, Word, Words, find_links, settle_commas, to_text


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence in both languages and the links between its words."""

    english: str
    german: str
    links: Links


def make_sentence(english: Words, german: Words, stop: str = ".") -> Sentence:
    """The sentence, with its final stop and without superfluous commas."""
    end = Word(stop, ("stop",))
    english, german = settle_commas([*english, end]), settle_commas([*german, end])
    return Sentence(to_text(english), to_text(german), find_links(english, german))


def end_with(sentence: Sentence, stop: str) -> Sentence:
    """The sentence with another final stop, in both languages."""
    return Sentence(sentence.english[:-1] + stop, sentence.german[:-1] + stop, sentence.links)


def linked(english: str, german: str) -> tuple[Word, Word]:
    """Two words that are each other's translation."""
    return Word(english, (english,)), Word(german, (english,))


def state(subject: NounPhrase, predicate: Predicate, moment: Moment) -> Sentence:
    """A statement; its time may stand first, and then the German subject follows the verb."""
    said = clause(subject, predicate, moment)
    if moment.is_fronted and moment.time:
        english = english_statement(said, "a", front=moment.time.english("at"))
        return make_sentence(english, german_statement(said, "a", front=moment.time.german("at")))
    return make_sentence(english_statement(said, "a"), german_statement(said, "a"))


def ask(subject: NounPhrase, predicate: Predicate, moment: Moment) -> Sentence:
    """A question without a question word."""
    said = clause(subject, predicate, moment)
    return make_sentence(english_question(said, "a"), german_question(said, "a"), "?")
