"""Sentences with a subordinate clause or an infinitive, where the German verb goes last."""

from functools import cache, partial

from rela.toy import particles
from rela.toy.adjectives import ADJECTIVES, Adjective, adjectives_for
from rela.toy.clauses import (
    Clause,
    Predicate,
    english_infinitive,
    english_statement,
    german_infinitive,
    german_statement,
    german_subordinate,
)
from rela.toy.moments import Moment, clause, embedded_moments, plain_moments
from rela.toy.nouns import nouns_tagged
from rela.toy.phrases import Asked, Nominal, NounPhrase, Property
from rela.toy.selection import (
    NAMES,
    PRONOUNS,
    THIRD_PERSON,
    anybody,
    nominals,
    predicates,
    statements,
)
from rela.toy.sentences import Sentence, linked, make_sentence
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verb_groups import EXTENDED, MOTION, SEPARABLE, SHORT, TRANSITIVE
from rela.toy.verbs import CLAUSE_VERBS, WEATHER_VERBS, Verb, verbs_governing
from rela.toy.words import COMMA, Word


@cache
def _embedded_clauses() -> Space[Clause]:
    """Short clauses to stand beside or within another."""
    return statements(clause, SHORT, embedded_moments)


@cache
def plain_clauses() -> Space[Clause]:
    """Clauses in the present, to stand first."""
    return statements(clause, SHORT, plain_moments)


@cache
def _general_clauses() -> Space[Clause]:
    """Clauses in the simple present: what happens whenever something else does."""
    return statements(clause, SHORT, lambda verb: Items([Moment()]))


@cache
def _copular_clauses() -> Space[Clause]:
    """Somebody is tired, and so on."""

    def make(subject: NounPhrase, adjective: Adjective) -> Clause:
        return Clause(subject, Predicate(None, place=Property(adjective)))

    people = Items(adjective for adjective in ADJECTIVES if "person" in adjective.tags)
    who: Space[NounPhrase] = Union([nominals(("person",), "definite", False), Items((*NAMES, *PRONOUNS))], [1, 1])
    return Product(make, who, people)


@cache
def _weather_clauses() -> Space[Clause]:
    it = Asked("it", "es")
    (weather,) = nouns_tagged("weather")
    the_weather = Nominal(particles.THE, "s", None, weather)
    falling = Items(Clause(it, Predicate(verb)) for verb in WEATHER_VERBS)
    fine = Items(Clause(the_weather, Predicate(None, place=Property(item))) for item in adjectives_for(weather))
    return Union([falling, fine])


def _introductions(government: str) -> Space[Clause]:
    """Somebody knows, says, asks … before a clause."""

    def of_verb(verb: Verb) -> Space[Clause]:
        # One asks whether, and one does not know whether.
        is_negated = government == "whether" and "state" in verb.flags
        moments = [Moment(is_negated=is_negated)]
        if "state" not in verb.flags:
            moments += [Moment("past"), Moment("perfect")]
        return Product(lambda subject, moment: clause(subject, Predicate(verb), moment), anybody(), Items(moments))

    return each(verbs_governing(government), of_verb)


def _subordinated(english_word: str, german_word: str, mains: Space[Clause], others: Space[Clause]) -> Space[Sentence]:
    """A main clause, a conjunction, and a subordinate clause."""
    conjunction, konjunktion = linked(english_word, german_word)

    def make(main: Clause, other: Clause) -> Sentence:
        english = [*english_statement(main, "a"), conjunction, *english_statement(other, "b")]
        german = [*german_statement(main, "a"), COMMA, konjunktion, *german_subordinate(other, "b")]
        return make_sentence(english, german)

    return Product(make, mains, others)


def that_clauses() -> Space[Sentence]:
    """Anna knows that the man sings."""
    return _subordinated("that", "dass", _introductions("that"), _embedded_clauses())


def whether_clauses() -> Space[Sentence]:
    """Anna asks whether the man sings; Anna does not know whether the man sings."""
    return _subordinated("whether", "ob", _introductions("whether"), _embedded_clauses())


def because_clauses() -> Space[Sentence]:
    """Anna laughs because the man sings."""
    mains = Union([plain_clauses(), _copular_clauses()], [2, 1])
    reasons = Union([_embedded_clauses(), _copular_clauses(), _weather_clauses()], [2, 1, 0.5])
    return _subordinated("because", "weil", mains, reasons)


def conditionals() -> Space[Sentence]:
    """If it rains, Anna reads a book: the German main clause then begins with dann, which English leaves out."""
    (condition_word, wenn), (comma, komma), dann = linked("if", "wenn"), linked(",", ","), [Word("dann")]

    def make(condition: Clause, main: Clause) -> Sentence:
        english = [condition_word, *english_statement(condition, "a"), comma, *english_statement(main, "b")]
        first = [wenn, *german_subordinate(condition, "a"), komma]
        return make_sentence(english, [*first, *german_statement(main, "b", dann, particle=None)])

    conditions = Union([_copular_clauses(), _weather_clauses(), _general_clauses()], [1, 1, 1])
    return Product(make, conditions, _general_clauses())


def infinitives() -> Space[Sentence]:
    """Anna tries to repair the car."""

    def make(main_verb: Verb, subject: NounPhrase, predicate: Predicate, moment: Moment) -> Sentence:
        main = clause(subject, Predicate(main_verb), moment)
        within = Clause(subject, predicate)
        english = [*english_statement(main, "a"), *english_infinitive(within, "b")]
        return make_sentence(english, [*german_statement(main, "a"), COMMA, *german_infinitive(within, "b")])

    when = Items([Moment(), Moment("perfect")])
    return each(
        [verb for verb in CLAUSE_VERBS if verb.government == ("to",)],
        lambda main_verb: statements(partial(make, main_verb), EXTENDED, lambda verb: when, with_animals=False),
    )


def purposes() -> Space[Sentence]:
    """Anna goes to the city in order to buy a book."""
    in_order, um = [Word("in", ("um",)), Word("order", ("um",))], Word("um", ("um",))

    def make(subject: NounPhrase, going: Predicate, purpose: Predicate, moment: Moment) -> Sentence:
        main, within = clause(subject, going, moment), Clause(subject, purpose)
        english = [*english_statement(main, "a"), *in_order, *english_infinitive(within, "b")]
        return make_sentence(english, [*german_statement(main, "a"), COMMA, um, *german_infinitive(within, "b")])

    going = each(
        [verb for verb in MOTION if verb.base in ("go", "drive", "come", "travel")],
        lambda verb: predicates(verb, "object", ()),
    )
    verbs = [
        verb
        for verb in TRANSITIVE + SEPARABLE
        if verb.government == ("acc",) and verb.flags.isdisjoint(("state", "simple"))
    ]
    purposes = each(verbs, lambda verb: predicates(verb, "object", THIRD_PERSON))
    return Product(make, anybody(), going, purposes, Items([Moment(), Moment("progressive"), Moment("perfect")]))
