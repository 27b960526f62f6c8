"""Sentences of one clause that need more than a verb with its objects."""

from functools import cache, partial

from rela.toy import particles
from rela.toy.adjectives import ADJECTIVES, Adjective, adjectives_for
from rela.toy.clauses import Clause, Complement, Predicate, english_infinitive, german_infinitive
from rela.toy.moments import ANY_BE_MOMENTS, BE_MOMENTS, NEGATED_BE_MOMENTS, Moment, present_moments
from rela.toy.nouns import NOUNS, Noun, nouns_tagged
from rela.toy.particles import Fixed
from rela.toy.phrases import (
    Comparison,
    GenitiveOwner,
    Instrument,
    Name,
    NamedOwner,
    Nominal,
    NounPhrase,
    Phrase,
    Prepositional,
    Profession,
    Pronoun,
    Property,
)
from rela.toy.selection import (
    MEN,
    NAMES,
    PRONOUNS,
    THIRD_PERSON,
    WOMEN,
    anybody,
    nominals,
    nominals_but,
    nominals_of,
    numbers,
    objects,
    optional,
    places,
    predicates,
)
from rela.toy.sentences import Sentence, linked, make_sentence, state
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verb_groups import EVENTS
from rela.toy.verbs import BELONG, PLAY_MUSIC, Verb, verbs_governing
from rela.toy.words import Word


def instruments() -> Space[Sentence]:
    """Anna plays the guitar, Anna spielt Gitarre."""

    def make(subject: NounPhrase, noun: Noun, place: Phrase | None, moment: Moment) -> Sentence:
        return state(subject, Predicate(PLAY_MUSIC, (Complement(Instrument(noun), "acc"),), place=place), moment)

    where = optional(places(("here", "school", "room")), 0.4)
    return Product(make, anybody(), Items(nouns_tagged("instrument")), where, present_moments(PLAY_MUSIC))


def passives() -> Space[Sentence]:
    """The door is opened by the child; is and was are linked to wird and wurde."""

    def of_verb(verb: Verb) -> Space[Sentence]:
        def make(subject: NounPhrase, agent: NounPhrase, moment: Moment) -> Sentence:
            return state(subject, Predicate(verb, prepositional=Prepositional(("by",), "von", "dat", agent)), moment)

        agents: Space[NounPhrase] = Union([nominals(("person",), "any"), Items(NAMES)], [2, 1])
        when = Items([Moment("passive"), Moment("past passive")])
        return Product(make, nominals(verb.objects, "any"), agents, when)

    verbs = [verb for verb in verbs_governing("acc") if verb.flags.isdisjoint(("state", "simple"))]
    return each([verb for verb in verbs if "language" not in verb.objects], of_verb)


def qualities() -> Space[Sentence]:
    """The soup is very hot."""

    def make(subject: NounPhrase, adjective: Adjective, how: tuple[Fixed | None, Moment]) -> Sentence:
        degree, moment = how
        return state(subject, Predicate(None, place=Property(adjective, degree)), moment)

    certain = Product(lambda *how: how, optional(Items(particles.DEGREES), 0.4), BE_MOMENTS)
    denied = Product(lambda *how: how, optional(Items(particles.DEGREES[:2]), 0.4), NEGATED_BE_MOMENTS)  # not quite: no
    how = Union([certain, denied], [3, 1])

    def of_noun(noun: Noun) -> Space[Sentence]:
        return Product(make, nominals_of(noun, "definite", False), Items(adjectives_for(noun)), how)

    people = Items(adjective for adjective in ADJECTIVES if "person" in adjective.tags)
    somebody = Items((*NAMES, *PRONOUNS))
    nouns = [noun for noun in NOUNS if adjectives_for(noun)]
    return Union([each(nouns, of_noun), Product(make, somebody, people, how)], [3, 1])


def positions() -> Space[Sentence]:
    """The cat is in front of the sofa."""

    def make(subject: NounPhrase, position: tuple[tuple[str, ...], str], place: Nominal, moment: Moment) -> Sentence:
        return state(subject, Predicate(None, place=Prepositional(*position, "dat", place)), moment)

    things = nominals(("portable", "pet"), "definite")
    furniture = nominals(("furniture",), "place")
    return Product(make, things, Items(particles.POSITIONS), furniture, ANY_BE_MOMENTS)


def professions() -> Space[Sentence]:
    """Anna is a doctor, Anna ist Ärztin."""

    def make(is_woman: bool, subject: NounPhrase, noun: Noun, moment: Moment) -> Sentence:
        return state(subject, Predicate(None, place=Profession(noun, is_woman)), moment)

    kin = nouns_tagged("kin")
    when = Items([Moment(), Moment("past")])

    def of_sex(is_woman: bool) -> Space[Sentence]:
        relatives = each(
            [noun for noun in kin if (noun.gender == "f") == is_woman],
            lambda noun: Product(lambda determiner: Nominal(determiner, "s", None, noun), Items(particles.POSSESSIVES)),
        )
        alone: tuple[Name | Pronoun, ...] = (*WOMEN, PRONOUNS[3]) if is_woman else (*MEN, PRONOUNS[2])
        who: Space[NounPhrase] = Union([relatives, Items(alone)], [1, 1])
        return Product(partial(make, is_woman), who, Items(nouns_tagged("profession")), when)

    return each((False, True), of_sex)


_COMPARED = ("person", "animal", "text", "vehicle", "furniture", "building", "clothes", "thing", "idea")


def comparisons() -> Space[Sentence]:
    """The dog is bigger than the cat, or as big as the cat."""

    def make(subject: NounPhrase, adjective: Adjective, is_equal: bool, standard: NounPhrase, tense: str) -> Sentence:
        return state(subject, Predicate(None, place=Comparison(adjective, is_equal, standard)), Moment(tense))

    def of_tag(tag: str) -> Space[Sentence]:
        adjectives = Items(item for item in ADJECTIVES if tag in item.tags and item.comparative)

        def of_noun(noun: Noun) -> Space[Sentence]:
            others: Space[NounPhrase] = nominals_but(noun, (tag,), "definite")
            if tag == "person":
                others = Union([others, Items(NAMES)], [2, 1])
            subject = nominals_of(noun, "definite", False)
            return Product(make, subject, adjectives, Items((False, True)), others, Items(("present", "past")))

        return each(nouns_tagged(tag), of_noun)

    return each(_COMPARED, of_tag)


def existentials() -> Space[Sentence]:
    """There is a museum in Berlin; in Berlin there is a museum."""
    there, es = Word("there", ("there",)), Word("es", ("there",))

    def make(what: Nominal, where: Phrase, is_fronted: bool) -> Sentence:
        be, gibt = Word("is" if what.number == "s" else "are", ("be",)), Word("gibt", ("be",))
        english, german = what.english("a"), what.german("a", "acc")
        if is_fronted:
            return make_sentence([*where.english("l"), there, be, *english], [*where.german("l"), gibt, es, *german])
        return make_sentence([there, be, *english, *where.english("l")], [es, gibt, *german, *where.german("l")])

    return Product(make, nominals(("building",), "new"), places(("town", "area")), Items((False, True)))


@cache
def _singular_owners() -> Space[Nominal]:
    """People in the singular, whose 's is a word of its own."""

    def of_noun(noun: Noun) -> Space[Nominal]:
        determiners = (particles.THE, particles.THIS, *particles.POSSESSIVES)
        fitting = Items(determiner for determiner in determiners if "s" in numbers(noun, determiner))
        return Product(lambda determiner: Nominal(determiner, "s", None, noun), fitting)

    return each(nouns_tagged("person"), of_noun)


def possessions() -> Space[Sentence]:
    """The teacher's dog is old; Anna's dog is old; the dog belongs to Anna."""
    owned_nouns = nouns_tagged("portable", "pet", "vehicle", "clothes")

    def make(subject: NounPhrase, adjective: Adjective, moment: Moment) -> Sentence:
        return state(subject, Predicate(None, place=Property(adjective)), moment)

    def of_noun(noun: Noun) -> Space[Sentence]:
        named = Product(lambda owner, number: NamedOwner(noun, number, owner), Items(NAMES), Items("sp"))
        owned = Product(lambda owner, number: GenitiveOwner(noun, number, owner), _singular_owners(), Items("sp"))
        return Product(make, Union([named, owned], [1, 2]), Items(adjectives_for(noun)), ANY_BE_MOMENTS)

    belonging = Product(
        lambda thing, owner: state(thing, Predicate(BELONG, (Complement(owner, "dat"),)), Moment()),
        nominals(BELONG.subjects, "definite"),
        objects(("person",), "definite", PRONOUNS),
    )
    return Union([each([noun for noun in owned_nouns if adjectives_for(noun)], of_noun), belonging], [2, 1])


def suggestions() -> Space[Sentence]:
    """Let us read a book, Lass uns doch ein Buch lesen."""
    we = PRONOUNS[4]
    (let, lass), (us, uns) = linked("let", "lass"), linked("us", "uns")

    def make(predicate: Predicate) -> Sentence:
        said = Clause(we, predicate)
        return make_sentence(
            [let, us, *english_infinitive(said, "a", with_to=False)],
            [lass, uns, *german_infinitive(said, "a", with_zu=False, particle=particles.DOCH)],
        )

    verbs = [verb for verb in EVENTS if verb.flags.isdisjoint(("sich", "simple", "where"))]
    return each(verbs, lambda verb: Product(make, predicates(verb, "object", THIRD_PERSON)))
