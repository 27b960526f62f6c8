"""Sentences with a relative clause: on a subject who does something, on an object, on what something is done to."""

from functools import cache

from rela.toy.adjectives import ADJECTIVES, Adjective, adjectives_for
from rela.toy.clauses import (
    Clause,
    Complement,
    Predicate,
    english_predicate,
    english_statement,
    german_predicate,
    german_statement,
    german_subordinate,
)
from rela.toy.moments import Moment, clause, embedded_moments
from rela.toy.nouns import Noun, nouns_tagged
from rela.toy.phrases import Nominal, NounPhrase, Property, RelativePronoun
from rela.toy.selection import NAMES, PRONOUNS, THIRD_PERSON, nominals, nominals_of, predicates
from rela.toy.sentences import Sentence, make_sentence
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verb_groups import SHORT, TRANSITIVE
from rela.toy.verbs import Verb
from rela.toy.words import COMMA, Words

_TENSES = Items(("present", "past"))
_ACQUAINTANCE = ("know", "like", "love", "see", "visit", "greet", "admire")


def relative_clauses() -> Space[Sentence]:
    """Sentences with a relative clause, in the three places it can have."""
    things = [verb for verb in TRANSITIVE if "person" not in verb.objects and "language" not in verb.objects]
    return Union([each(SHORT, _on_subject), each(SHORT, _on_object), each(things, _on_thing)], [1, 1, 1])


def _on_subject(verb: Verb) -> Space[Sentence]:
    """The man who buys the book is old."""

    def make(head: Nominal, relative: Predicate, moment: Moment, main: Predicate, tense: str) -> Sentence:
        within = clause(RelativePronoun(head), relative, moment)
        words = (english_statement(within, "r"), german_subordinate(within, "r"))
        return _described(Clause(head, main, tense), *words)

    qualities = Items(_quality(adjective) for adjective in ADJECTIVES if "person" in adjective.tags)
    doing = predicates(verb, "object", PRONOUNS)
    return Product(make, _people(), doing, embedded_moments(verb), qualities, _TENSES)


def _on_object(verb: Verb) -> Space[Sentence]:
    """Anna knows the man who buys the book."""

    def make(subject: NounPhrase, knows: Verb, head: Nominal, relative: Predicate, moment: Moment) -> Sentence:
        within = clause(RelativePronoun(head), relative, moment)
        main = Clause(subject, Predicate(knows, (Complement(head, "acc"),)))
        english = [*english_statement(main, "a"), *english_statement(within, "r")]
        return make_sentence(english, [*german_statement(main, "a"), COMMA, *german_subordinate(within, "r")])

    acquaintance = Items(verb for verb in TRANSITIVE if verb.base in _ACQUAINTANCE)
    doing = predicates(verb, "object", THIRD_PERSON)
    return Product(make, _somebody(), acquaintance, _people(), doing, embedded_moments(verb))


def _on_thing(verb: Verb) -> Space[Sentence]:
    """The book which Anna reads is old."""

    def make(
        head: Nominal, subject: NounPhrase, predicate: Predicate, moment: Moment, main: Predicate, tense: str
    ) -> Sentence:
        pronoun = RelativePronoun(head)
        within = clause(subject, predicate, moment)
        english = english_statement(within, "r", pronoun.english("ro"))
        german = german_subordinate(within, "r", pronoun.german("ro", "acc"))
        return _described(Clause(head, main, tense), english, german)

    def of_noun(noun: Noun) -> Space[Sentence]:
        qualities = Items(_quality(adjective) for adjective in adjectives_for(noun))
        heads = nominals_of(noun, "definite", False)
        # A space of one predicate: drawing from it uses a random number, which keeps the corpus of each seed the same.
        reading = Items([Predicate(verb)])
        return Product(make, heads, _somebody(), reading, embedded_moments(verb), qualities, _TENSES)

    return each([noun for noun in nouns_tagged(*verb.objects) if adjectives_for(noun)], of_noun)


def _described(main: Clause, english_relative: Words, german_relative: Words) -> Sentence:
    """The main clause with a relative clause after its subject."""
    english = [*main.subject.english("as", True), *english_relative, *english_predicate(main, "a")]
    german = [*main.subject.german("as", "nom"), COMMA, *german_relative, COMMA, *german_predicate(main, "a")]
    return make_sentence(english, german)


def _quality(adjective: Adjective) -> Predicate:
    return Predicate(None, place=Property(adjective))


@cache
def _people() -> Space[Nominal]:
    return nominals(("person",), "definite", False)


@cache
def _somebody() -> Space[NounPhrase]:
    return Union([Items(NAMES), Items(PRONOUNS)], [1, 1])
