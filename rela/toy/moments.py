"""Moments: tense, time, frequency, mood and negation, and which of them go with which verb."""

from dataclasses import dataclass

from rela.toy import particles
from rela.toy.clauses import Clause, Predicate
from rela.toy.particles import Fixed
from rela.toy.phrases import NounPhrase
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verbs import CAN, MODALS, SHOULD, WILL, Modal, Verb


@dataclass(frozen=True, eq=False, slots=True)
class Moment:
    """When and whether something is so: all of a clause that is neither its subject nor its predicate."""

    tense: str = "present"
    time: Fixed | None = None
    frequency: Fixed | None = None
    modal: Modal | None = None
    is_negated: bool = False
    is_fronted: bool = False  # the time stands first


def clause(subject: NounPhrase, predicate: Predicate, moment: Moment) -> Clause:
    """A clause from its three parts."""
    return Clause(subject, predicate, moment.tense, moment.time, moment.frequency, moment.modal, moment.is_negated)


def timed(tense: str, times: tuple[Fixed, ...], modal: Modal | None = None) -> Space[Moment]:
    """The tense with each of the times, first or last in the sentence."""
    return Product(
        lambda time, is_fronted: Moment(tense, time, modal=modal, is_fronted=is_fronted),
        Items(times),
        Items((False, True)),
    )


_PLAIN: Space[Moment] = Items([Moment()])


_HABITUAL = Union(
    [_PLAIN, timed("present", particles.HABITS), Items(Moment(frequency=item) for item in particles.FREQUENCIES)],
    [2, 2, 1.5],
)


_CURRENT = Union([Items([Moment("progressive")]), timed("progressive", particles.PRESENT_TIMES)], [1, 1])


def present_moments(verb: Verb) -> Space[Moment]:
    """Simple present, habits and, unless the verb is a state, the progressive."""
    if not verb.flags.isdisjoint(("state", "lasting")):
        return plain_moments(verb)
    if "simple" in verb.flags:
        return _HABITUAL
    return Union([_HABITUAL, _CURRENT], [1, 1])


def plain_moments(verb: Verb) -> Space[Moment]:
    """Present and progressive without adverbials."""
    if verb.flags.isdisjoint(("state", "simple")):
        return Items([Moment(), Moment("progressive")])
    return _PLAIN


def modal_moments(verb: Verb) -> Space[Moment]:
    """Modals, some with a time to come."""
    plain = Items(Moment("modal", modal=modal) for modal in MODALS)
    return Union([plain, each(MODALS, lambda modal: timed("modal", particles.FUTURE_TIMES, modal))], [2, 1])


def future_moments(verb: Verb) -> Space[Moment]:
    """will, most often with a time."""
    return Union([Items([Moment("modal", modal=WILL)]), timed("modal", particles.FUTURE_TIMES, WILL)], [1, 2])


def perfect_moments(verb: Verb) -> Space[Moment]:
    """The perfect, half of the time with already, never, often or just."""
    often = Items(Moment("perfect", frequency=item) for item in particles.PERFECT_FREQUENCIES)
    return Union([Items([Moment("perfect")]), often], [1, 1])


def past_moments(verb: Verb) -> Space[Moment]:
    """The simple past, always with a time: it is what tells some pasts from presents."""
    return timed("past", particles.PAST_TIMES)


def negated_moments(verb: Verb) -> Space[Moment]:
    """Everything that not can deny."""
    moments = [Moment(is_negated=True)]
    if "state" not in verb.flags:
        moments += [Moment("perfect", is_negated=True), Moment("past", particles.PAST_TIMES[0], is_negated=True)]
        moments += [Moment("modal", modal=modal, is_negated=True) for modal in (CAN, SHOULD, WILL)]
        if "simple" not in verb.flags:
            moments.append(Moment("progressive", is_negated=True))
    return Items(moments)


def question_moments(verb: Verb, with_perfect: bool = True) -> Space[Moment]:
    """What questions are asked in."""
    moments = [Moment()]
    if "state" not in verb.flags:
        moments += [Moment("past"), Moment("modal", modal=CAN), Moment("modal", modal=SHOULD)]
        if with_perfect:
            moments.append(Moment("perfect"))
        if "simple" not in verb.flags:
            moments.append(Moment("progressive"))
    return Items(moments)


# Only with these verbs does a question begin with the verb itself: at the head of a sentence each form is a new word.
_HEADING = {"read", "buy", "have", "know", "drink", "help", "sleep", "work", "live", "go", "come"}


def polar_moments(verb: Verb) -> Space[Moment]:
    """What questions without a question word are asked in."""
    if verb.base in _HEADING:
        return question_moments(verb)
    tenses = [Moment("perfect"), Moment("past"), *[Moment("modal", modal=modal) for modal in (CAN, SHOULD, WILL)]]
    return Items([] if "state" in verb.flags else tenses)


def embedded_moments(verb: Verb) -> Space[Moment]:
    """What clauses within a sentence are in."""
    moments = [Moment()]
    if "state" not in verb.flags:
        moments += [Moment("perfect"), *[Moment("modal", modal=modal) for modal in (CAN, SHOULD, WILL)]]
        if "simple" not in verb.flags:
            moments.append(Moment("progressive"))
    return Items(moments)


BE_MOMENTS: Space[Moment] = Items([Moment(), Moment("past")])
NEGATED_BE_MOMENTS: Space[Moment] = Items([Moment(is_negated=True), Moment("past", is_negated=True)])
ANY_BE_MOMENTS = Union([BE_MOMENTS, NEGATED_BE_MOMENTS], [3, 1])
