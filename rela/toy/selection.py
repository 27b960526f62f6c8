"""Which phrases make sense where: spaces of noun phrases, predicates and moments.

A determiner profile says which determiners a noun may have: "any" (subjects), "plain" (subjects of what may be denied:
not every and many), "object" (also bare plurals), "definite", "negated" (what nicht and kein can deny), "place" (in the
singular), "new" (what there is).
"""

from collections.abc import Callable
from functools import cache, partial

from rela.toy import particles
from rela.toy.adjectives import Adjective, adjectives_for
from rela.toy.clauses import Complement, Predicate
from rela.toy.moments import Moment
from rela.toy.nouns import Noun, nouns_tagged
from rela.toy.particles import (
    BARE,
    EVERY,
    FIXED_PLACES,
    MANY,
    NUMBERS,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Determiner,
    Fixed,
)
from rela.toy.phrases import Name, Nominal, NounPhrase, Phrase, Prepositional, Pronoun
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verbs import Verb

# Determiner groups and how often each is drawn.
_PROFILES: dict[str, tuple[tuple[tuple[Determiner, ...], float], ...]] = {
    "any": (((THE,), 4), ((A,), 2), ((THIS,), 1), (POSSESSIVES, 2), ((EVERY,), 0.5), (NUMBERS, 1), ((MANY,), 0.5)),
    "object": (((THE,), 3), ((A,), 3), ((THIS,), 1), (POSSESSIVES, 2), (NUMBERS, 1), ((MANY,), 0.5), ((BARE,), 1.5)),
    "definite": (((THE,), 3), ((THIS,), 1), (POSSESSIVES, 2)),
    "plain": (((THE,), 4), ((A,), 2), ((THIS,), 1), (POSSESSIVES, 2), (NUMBERS, 1)),
    "negated": (((THE,), 2), ((A,), 2), ((THIS,), 1), (POSSESSIVES, 1), ((BARE,), 1)),
    "place": (((THE,), 5), ((THIS,), 1), ((A,), 1)),
    "new": (((A,), 2), (NUMBERS, 1), ((MANY,), 1)),
}
_ADJECTIVE_RATE = 0.3

PRONOUNS = tuple(Pronoun(*forms) for forms in particles.PRONOUNS)
THIRD_PERSON = tuple(pronoun for pronoun in PRONOUNS if pronoun.person.startswith("3"))
WOMEN = tuple(Name(text) for text in particles.WOMEN)
MEN = tuple(Name(text) for text in particles.MEN)
NAMES = (*WOMEN, *MEN)


def optional(space: Space, rate: float) -> Union:
    """The space, and None; `rate` is how often it is not None."""
    return Union([Items([None]), space], [1 - rate, rate])


def numbers(noun: Noun, determiner: Determiner) -> str:
    """The numbers in which the noun goes with the determiner."""
    if "mass" in noun.tags:
        return "s" if determiner in (THE, THIS, BARE, *POSSESSIVES) else ""
    if "kin" in noun.tags and determiner not in POSSESSIVES:
        return ""
    if "person" in noun.tags and determiner in POSSESSIVES and noun.tags.isdisjoint(("kin", "own")):
        return ""
    if determiner is BARE:
        return "p"
    return "s" if "single" in noun.tags else determiner.numbers


@cache
def nominals_of(noun: Noun, profile: str, with_adjective: bool = True) -> Space[Nominal]:
    """The noun with every determiner of the profile, and with adjectives or without."""
    groups = (((BARE,), 1.0),) if "language" in noun.tags else _PROFILES[profile]
    determiners = Union(
        [
            Items(
                (item, number)
                for item in group
                for number in numbers(noun, item)
                if profile != "place" or number == "s"
            )
            for group, _ in groups
        ],
        [weight for _, weight in groups],
    )
    adjectives: Space[Adjective | None] = Items([None])
    if with_adjective and adjectives_for(noun):
        adjectives = optional(Items(adjectives_for(noun)), _ADJECTIVE_RATE)

    def make(determiner: tuple[Determiner, str], adjective: Adjective | None) -> Nominal:
        return Nominal(*determiner, adjective, noun)

    return Product(make, determiners, adjectives)


@cache
def nominals(tags: tuple[str, ...], profile: str, with_adjective: bool = True) -> Space[Nominal]:
    """The noun phrases of all nouns with one of the tags."""
    return each(nouns_tagged(*tags), lambda noun: nominals_of(noun, profile, with_adjective))


@cache
def subjects(tags: tuple[str, ...] = ("person",), profile: str = "any") -> Space[NounPhrase]:
    """Subjects other than pronouns."""
    phrases = nominals(tags, profile)
    return Union([phrases, Items(NAMES)], [3, 1]) if "person" in tags else phrases


@cache
def anybody() -> Space[NounPhrase]:
    """People, names and pronouns as subjects, where no object could get in their way."""
    return Union([subjects(profile="plain"), Items(PRONOUNS)], [2, 1])


@cache
def objects(tags: tuple[str, ...], profile: str, pronouns: tuple[Pronoun, ...]) -> Space[NounPhrase]:
    """Objects; people may be named, or be one of the pronouns."""
    phrases = nominals(tags, profile)
    return Union([phrases, Items(NAMES), Items(pronouns)], [3, 0.6, 1]) if "person" in tags else phrases


def _somewhere(noun: Noun, is_direction: bool) -> Space[Phrase]:
    """The noun after the preposition it takes."""
    assert noun.place is not None
    english, where, whither = noun.place
    if not is_direction:
        make = partial(Prepositional, (english,), where, "dat")
    else:
        make = partial(Prepositional, ("to",), whither, "dat" if whither == "zu" else "acc")
    return Product(make, nominals_of(noun, "place"))


@cache
def places(tags: tuple[str, ...], is_direction: bool = False) -> Space[Phrase]:
    """Places with one of the tags, fixed expressions among them; or directions towards them."""
    spaces: list[Space[Phrase]] = [Items(FIXED_PLACES[tag]) for tag in tags if tag in FIXED_PLACES]
    # a street and a mountain are places to be on, not to go to
    nouns = [noun for noun in nouns_tagged(*tags) if not (is_direction and "spot" in noun.tags)]
    if nouns:
        spaces.append(each(nouns, lambda noun: _somewhere(noun, is_direction)))
    return Union(spaces, [space.size**0.25 for space in spaces])


def _settings(verb: Verb, is_animal: bool) -> Space[Predicate]:
    """A verb without objects: where it happens or leads, and how."""
    tags = tuple(tag for tag in verb.objects if tag in ("here", "open")) if is_animal else verb.objects
    if "whither" in verb.flags:
        directions = places(tags if not is_animal else ("open", "water"), is_direction=True)
        if "means" in verb.flags:
            return Product(partial(_setting, verb), directions, optional(Items(particles.MEANS), 0.5))
        return Product(partial(_setting, verb), directions)
    if not tags:
        return Items([Predicate(verb)])
    if "where" in verb.flags:
        return Product(partial(_setting, verb), places(tags))
    manners = [
        manner for manner in particles.MANNERS if "voice" in verb.flags or manner.english_words[-1] in ("alone", "lot")
    ]
    how = Items(Predicate(verb, manner=manner) for manner in manners)
    return Union([Items([Predicate(verb)]), Product(partial(_setting, verb), places(tags)), how], [1, 2, 0.7])


def _setting(verb: Verb, place: Phrase | None, manner: Fixed | None = None) -> Predicate:
    return Predicate(verb, place=place, manner=manner)


@cache
def predicates(verb: Verb, profile: str, pronouns: tuple[Pronoun, ...], is_animal: bool = False) -> Space[Predicate]:
    """Everything that can be said with the verb; `profile` and `pronouns` limit its objects."""
    # nicht and kein reach an accusative object only
    other_profile = "definite" if profile == "negated" else profile
    match verb.government:
        case ("acc",):

            def make(phrase: NounPhrase, place: Phrase | None = None) -> Predicate:
                return Predicate(verb, (Complement(phrase, "acc"),), place=place)

            direct = objects(verb.objects, profile, pronouns)
            if "anywhere" in verb.flags:
                return Product(make, direct, optional(places(("here", "room", "open")), 0.25))
            return Product(make, direct)
        case ("dat",):
            return Product(
                lambda phrase: Predicate(verb, (Complement(phrase, "dat"),)),
                objects(verb.objects, other_profile, pronouns),
            )
        case ("dat", "acc"):
            return Product(
                lambda person, thing: Predicate(verb, (Complement(person, "dat"), Complement(thing, "acc"))),
                objects(("person",), "definite", pronouns),
                nominals(verb.objects, profile),
            )
        case (english, german, case):
            preposition = () if english == "-" else (english,)
            return Product(
                lambda phrase: Predicate(
                    verb, prepositional=Prepositional(preposition, german, case, phrase, case == "dat")
                ),
                objects(verb.objects, other_profile, pronouns),
            )
        case _:
            return _settings(verb, is_animal)


def statements(
    make: Callable[[NounPhrase, Predicate, Moment], object],
    verbs: tuple[Verb, ...],
    moments: Callable[[Verb], Space[Moment]],
    profile: str = "object",
    with_animals: bool = True,
) -> Space:
    """What `make` makes of every subject, predicate and moment that go together.

    Where the subject is a pronoun, object pronouns are of the third person: nobody says "I see me".
    """

    def of_verb(verb: Verb) -> Space:
        when = moments(verb)
        subject_profile = "plain" if profile == "negated" else "any"
        spaces: list[Space] = [
            Product(make, subjects(profile=subject_profile), predicates(verb, profile, PRONOUNS), when),
            Product(make, Items(PRONOUNS), predicates(verb, profile, THIRD_PERSON), when),
        ]
        weights = [2.0, 1.0]
        if with_animals and "calm" in verb.flags:
            spaces.append(
                Product(
                    make, subjects(("animal",), subject_profile), predicates(verb, profile, (), is_animal=True), when
                )
            )
            weights.append(0.7)
        return Union(spaces, weights)

    return each(verbs, of_verb)


def nominals_but(noun: Noun, tags: tuple[str, ...], profile: str) -> Space[Nominal]:
    """Noun phrases without adjectives, of all nouns with one of the tags but one: nothing is bigger than itself."""
    return each(
        [other for other in nouns_tagged(*tags) if other is not noun], lambda other: nominals_of(other, profile, False)
    )
