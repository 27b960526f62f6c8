"""Sentences joined by and or but: noun phrases, predicates, clauses."""

from rela.toy.clauses import (
    Clause,
    Complement,
    Predicate,
    english_predicate,
    english_statement,
    german_predicate,
    german_statement,
)
from rela.toy.complex_sentences import plain_clauses
from rela.toy.moments import plain_moments, present_moments
from rela.toy.nouns import Noun, nouns_tagged
from rela.toy.phrases import NounPhrase, Pair
from rela.toy.selection import NAMES, THIRD_PERSON, anybody, nominals, nominals_but, nominals_of, predicates
from rela.toy.sentences import Sentence, linked, make_sentence, state
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verb_groups import EVENTS, SHORT, TRANSITIVE
from rela.toy.verbs import Verb


def _joined(noun: Noun, tags: tuple[str, ...], profile: str) -> Space[Pair]:
    """The noun and another one."""
    return Product(Pair, nominals_of(noun, profile, False), nominals_but(noun, tags, profile))


def noun_coordinations() -> Space[Sentence]:
    """Anna and her brother are reading; he buys a hat and two shoes."""
    people = nominals(("person",), "definite", False)
    pairs: Space[Pair] = Union(
        [
            Product(Pair, Items(NAMES), people),
            each(nouns_tagged("person"), lambda noun: _joined(noun, ("person",), "definite")),
        ]
    )
    joint_subjects = each(
        SHORT, lambda verb: Product(state, pairs, predicates(verb, "object", THIRD_PERSON), present_moments(verb))
    )

    def of_verb(verb: Verb) -> Space[Sentence]:
        things = each(nouns_tagged(*verb.objects), lambda noun: _joined(noun, verb.objects, "object"))
        both = Product(lambda pair: Predicate(verb, (Complement(pair, "acc"),)), things)
        return Product(state, anybody(), both, plain_moments(verb))

    taking = [verb for verb in TRANSITIVE if verb.objects and "person" not in verb.objects]
    return Union([joint_subjects, each(taking, of_verb)], [1, 1])


def verb_coordinations() -> Space[Sentence]:
    """The child opens the door and goes into the kitchen: one subject, two predicates."""
    conjunction, und = linked("and", "und")

    def make(subject: NounPhrase, first: Predicate, second: Predicate) -> Sentence:
        one, two = Clause(subject, first), Clause(subject, second)
        english = [*english_statement(one, "a"), conjunction, *english_predicate(two, "b")]
        return make_sentence(english, [*german_statement(one, "a"), und, *german_predicate(two, "b", None)])

    def acts(*governments: tuple[str, ...]) -> Space[Predicate]:
        verbs = [verb for verb in EVENTS if verb.government in governments]
        return each(verbs, lambda verb: predicates(verb, "object", THIRD_PERSON))

    with_object, without = acts(("acc",), ("dat",)), acts(("-",))
    return Union([Product(make, anybody(), with_object, without), Product(make, anybody(), without, with_object)])


def clause_coordinations() -> Space[Sentence]:
    """The man sings and the woman dances; the man sings, but the woman sleeps."""
    (conjunction, und), (but, aber), (comma, komma) = linked("and", "und"), linked("but", "aber"), linked(",", ",")

    def make(is_contrast: bool, first: Clause, second: Clause) -> Sentence:
        english = [comma, but] if is_contrast else [conjunction]
        german = [komma, aber] if is_contrast else [und]
        return make_sentence(
            [*english_statement(first, "a"), *english, *english_statement(second, "b")],
            [*german_statement(first, "a"), *german, *german_statement(second, "b", particle=None)],
        )

    return Product(make, Items((False, True)), plain_clauses(), plain_clauses())
