"""Clauses: one meaning, and the word orders in which English and German can say it.

English keeps subject, verb, object. German puts the finite verb second in a statement, first in a question and last in
a subordinate clause; what is left of the verb (a separable prefix, a participle, an infinitive) closes the clause.

How verbs are linked, with the marks that do it (`v` the verb, `p` the particle of an English phrasal verb, `x` the
auxiliary, `neg` the negation):

- An auxiliary that both languages have is linked: has ↔ hat or ist, can ↔ kann, will ↔ wird, is ↔ wird in the passive.
- do, does and the be of the progressive have no counterpart and no link. did has one: did … buy ↔ hat … gekauft.
- The simple past is two German words: bought ↔ hat, gekauft.
- A separable verb is two German words where it is separated: calls ↔ ruft, an. A particle that English has too gets the
  prefix: gets ↔ steht, up ↔ auf; where German writes one word both are linked to it: get, up ↔ aufstehen.
- sich belongs to its verb: hurries ↔ beeilt, sich.
- to ↔ zu, except after want and would like, where German has none; to call ↔ anzurufen.
- not ↔ nicht, or with an indefinite object not, a ↔ kein.
- A modal particle has no counterpart and no link: Anna liest ja ein Buch is Anna reads a book.
"""

from dataclasses import dataclass

from rela.toy import english as en
from rela.toy import german as de
from rela.toy.particles import BARE, DENN, JA, A, Fixed
from rela.toy.phrases import Instrument, Nominal, NounPhrase, Phrase, Prepositional
from rela.toy.verbs import Modal, Verb
from rela.toy.words import Word, Words


@dataclass(frozen=True, eq=False, slots=True)
class Complement:
    """An object: a noun phrase in the case its verb asks for."""

    phrase: NounPhrase
    case: str


@dataclass(frozen=True, eq=False, slots=True)
class Predicate:
    """What is said of a subject; without a verb, `place` is said by means of be and sein."""

    verb: Verb | None
    objects: tuple[Complement, ...] = ()
    prepositional: Prepositional | None = None
    place: Phrase | None = None
    manner: Fixed | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """A subject, a predicate, and when and whether it is so.

    `tense` is "present", "progressive", "past", "perfect", "modal", "passive" or "past passive".
    """

    subject: NounPhrase
    predicate: Predicate
    tense: str = "present"
    time: Fixed | None = None
    frequency: Fixed | None = None
    modal: Modal | None = None
    is_negated: bool = False


# --- English ---------------------------------------------------------------------------------------------------------


def _english_verb(clause: Clause, role: str, needs_auxiliary: bool) -> tuple[Words, Words]:
    """The words up to the auxiliary, and from there to the main verb; "not" and adverbs stand between the two."""
    person, verb = clause.subject.person, clause.predicate.verb
    v, x = role + ".v", role + ".x"
    if verb is None:
        return [Word((en.BE_PAST if clause.tense == "past" else en.BE)[person], (x,))], []
    base = Word(verb.base, (v,))
    needs_auxiliary = needs_auxiliary or clause.is_negated
    match clause.tense:
        case "present":
            if needs_auxiliary:
                return [Word(en.DO[person])], [base]
            return [], [Word(verb.third, (v,)) if person == "3s" else base]
        case "past":
            return ([Word("did", (x,))], [base]) if needs_auxiliary else ([], [Word(verb.past, (v, x))])
        case "progressive":
            return [Word(en.BE[person])], [Word(verb.ing, (v,))]
        case "perfect":
            return [Word(en.HAVE[person], (x,))], [Word(verb.participle, (v,))]
        case "passive":
            return [Word(en.BE[person], (x,))], [Word(verb.participle, (v,))]
        case "past passive":
            return [Word(en.BE_PAST[person], (x,))], [Word(verb.participle, (v,))]
        case "modal":
            assert clause.modal is not None
            texts = clause.modal.english_third if person == "3s" else clause.modal.english
            modal = [Word(text, (x,)) for text in texts]
            return modal[:1], [*modal[1:], *([Word("to")] if clause.modal.has_to else []), base]
    raise ValueError(f"unknown tense {clause.tense!r}")


def _english_negation(auxiliary: Words, role: str) -> Words:
    """The auxiliary with its not, which can takes as part of the word."""
    mark = role + ".neg"
    if auxiliary and auxiliary[-1].text == "can":
        return [*auxiliary[:-1], Word("cannot", (*auxiliary[-1].marks, mark))]
    return [*auxiliary, Word("not", (mark,))]


def _english_rest(clause: Clause, role: str, with_time: bool) -> Words:
    """All that follows the main verb."""
    predicate = clause.predicate
    particle: Words = []
    objects = [complement.phrase for complement in predicate.objects]
    words: Words = []
    if predicate.verb:
        particle = [Word(text, (role + ".p",)) for text in predicate.verb.particle]
    if particle and objects and objects[0].is_pronoun and predicate.verb and "movable" in predicate.verb.flags:
        words += [*objects[0].english(role + "o0"), *particle]
    else:
        words += particle
        for position, phrase in enumerate(objects):
            words += phrase.english(f"{role}o{position}")
    if predicate.prepositional:
        words += predicate.prepositional.english(role + "q")
    manner = predicate.manner.english(role + "m") if predicate.manner else []
    place = predicate.place.english(role + "l") if predicate.place else []
    words += place + manner if predicate.manner and predicate.manner.after_place else manner + place
    if with_time and clause.time:
        words += clause.time.english(role + "t")
    return words


def _english_frequency(clause: Clause, role: str) -> Words:
    return clause.frequency.english(role + "f") if clause.frequency else []


def english_statement(clause: Clause, role: str, front: Words | None = None) -> Words:
    """Subject, verb, object; `front` goes before everything and stands for the time, or for an object left out."""
    return [*(front or []), *clause.subject.english(role + "s", True), *english_predicate(clause, role, front is None)]


def english_predicate(clause: Clause, role: str, with_time: bool = True) -> Words:
    """A statement without its subject."""
    auxiliary, main = _english_verb(clause, role, needs_auxiliary=False)
    if clause.is_negated:
        auxiliary = _english_negation(auxiliary, role)
    return [*auxiliary, *_english_frequency(clause, role), *main, *_english_rest(clause, role, with_time)]


def english_question(clause: Clause, role: str, front: Words | None = None) -> Words:
    """Auxiliary, subject, verb, object; `front` is the question word."""
    auxiliary, main = _english_verb(clause, role, needs_auxiliary=True)
    subject = clause.subject.english(role + "s", True)
    frequency = _english_frequency(clause, role)
    return [*(front or []), *auxiliary, *subject, *frequency, *main, *_english_rest(clause, role, with_time=True)]


def english_infinitive(clause: Clause, role: str, with_to: bool = True) -> Words:
    """(to) verb, object."""
    verb = clause.predicate.verb
    assert verb is not None
    to = [Word("to", (role + ".to",))] if with_to else []
    return [*to, Word(verb.base, (role + ".v",)), *_english_rest(clause, role, with_time=True)]


# --- German ----------------------------------------------------------------------------------------------------------


def _verb_marks(verb: Verb, role: str) -> tuple[str, ...]:
    """The marks of a German verb in one word: the verb's, and the particle's if English has one."""
    return (role + ".v", role + ".p") if verb.particle else (role + ".v",)


def _prefix_marks(verb: Verb, role: str) -> tuple[str, ...]:
    """The marks of a separated prefix: English says it with its particle, or within the verb."""
    return (role + ".p",) if verb.particle else (role + ".v",)


def _german_verb(clause: Clause, role: str) -> tuple[Word, Words]:
    """The finite verb, and what closes the clause."""
    person, verb, tense = clause.subject.person, clause.predicate.verb, clause.tense
    x = (role + ".x",)
    if verb is None:
        return Word((de.SEIN_PAST if tense == "past" else de.SEIN)[person], x), []
    marks = _verb_marks(verb, role)
    participle = Word(verb.german_participle, marks)
    match tense:
        case "present" | "progressive":
            finite = verb.present[person]
            if verb.prefix:
                return Word(finite, (role + ".v",)), [Word(verb.prefix, _prefix_marks(verb, role))]
            return Word(finite, marks), []
        case "past" | "perfect":
            return Word(verb.perfect_auxiliary[person], x), [participle]
        case "passive":
            return Word(de.WERDEN[person], x), [participle]
        case "past passive":
            return Word(de.WERDEN_PAST[person], x), [participle]
        case "modal":
            assert clause.modal is not None
            return Word(clause.modal.present[person], x), [Word(verb.full_infinitive, marks)]
    raise ValueError(f"unknown tense {tense!r}")


def _takes_kein(complement: Complement) -> bool:
    phrase = complement.phrase
    return (
        complement.case == "acc"
        and isinstance(phrase, Nominal)
        and (phrase.determiner is A or phrase.determiner is BARE)
    )


@dataclass
class GermanObjects:
    """The objects of a German clause, by where they stand in it."""

    pronouns: Words
    definite: Words
    later: Words
    instrument: Words  # Gitarre in Gitarre spielen: as close to the verb as a separable prefix
    negation: str  # the mark of a negation that no object has taken up as kein


def _german_objects(clause: Clause, role: str) -> GermanObjects:
    """The objects in German; the first that can takes up a negation as kein."""
    found = GermanObjects([], [], [], [], role + ".neg" if clause.is_negated else "")
    for position, complement in enumerate(clause.predicate.objects):
        in_kein = found.negation if found.negation and _takes_kein(complement) else ""
        phrase = complement.phrase
        rendered = phrase.german(f"{role}o{position}", complement.case, in_kein)
        if in_kein:
            found.negation = ""
        if isinstance(phrase, Instrument):
            found.instrument = rendered
        elif phrase.is_pronoun:
            found.pronouns += rendered
        elif phrase.is_definite and not found.definite:
            found.definite += rendered
        else:
            found.later += rendered
    return found


def _german_subject(clause: Clause, role: str, with_subject: bool) -> Words:
    """The subject, if it is wanted here, and sich with a reflexive verb."""
    words = clause.subject.german(role + "s", "nom") if with_subject else []
    verb = clause.predicate.verb
    if verb and "sich" in verb.flags:
        reflexive = Word(de.REFLEXIVE[clause.subject.person], (role + ".v",))
        # er sich, but sich der Mann
        return [*words, reflexive] if clause.subject.is_pronoun else [reflexive, *words]
    return words


def _german(phrase: Phrase | None, role: str) -> Words:
    """A phrase in German; no words if there is none."""
    return phrase.german(role) if phrase else []


def _german_middle(clause: Clause, role: str, particle: Word | None, with_subject: bool, with_time: bool) -> Words:
    """All between the finite verb and the closing words.

    Pronouns come first, then a modal particle, the time, a definite object, adverbs of frequency or nicht, an
    indefinite or second object, and last what belongs most closely to the verb: prepositional objects, manner, place.
    """
    predicate, objects = clause.predicate, _german_objects(clause, role)
    return [
        *_german_subject(clause, role, with_subject),
        *objects.pronouns,
        *([particle] if particle else []),
        *(_german(clause.time, role + "t") if with_time else []),
        *objects.definite,
        *_german(clause.frequency, role + "f"),
        *([Word("nicht", (objects.negation,))] if objects.negation else []),
        *objects.later,
        *_german(predicate.prepositional, role + "q"),
        *_german(predicate.manner, role + "m"),
        *_german(predicate.place, role + "l"),
        *objects.instrument,
    ]


def german_statement(clause: Clause, role: str, front: Words | None = None, particle: Word | None = JA) -> Words:
    """The finite verb second: after the subject, or after `front`, and then the subject follows the verb.

    `particle` is the modal particle, if it has one.
    """
    if front is None:
        return [*clause.subject.german(role + "s", "nom"), *german_predicate(clause, role, particle)]
    finite, closing = _german_verb(clause, role)
    return [*front, finite, *_german_middle(clause, role, particle, with_subject=True, with_time=False), *closing]


def german_predicate(clause: Clause, role: str, particle: Word | None = JA) -> Words:
    """A statement without its subject."""
    finite, closing = _german_verb(clause, role)
    return [finite, *_german_middle(clause, role, particle, with_subject=False, with_time=True), *closing]


def german_question(clause: Clause, role: str, front: Words | None = None) -> Words:
    """The finite verb first, or after the question word."""
    finite, closing = _german_verb(clause, role)
    middle = _german_middle(clause, role, DENN, with_subject=True, with_time=True)
    return [*(front or []), finite, *middle, *closing]


def german_subordinate(clause: Clause, role: str, front: Words | None = None) -> Words:
    """The finite verb last; `front` is a relative pronoun that stands for an object."""
    finite, closing = _german_verb(clause, role)
    middle = _german_middle(clause, role, None, with_subject=True, with_time=True)
    verb = clause.predicate.verb
    if verb and verb.prefix and clause.tense in ("present", "progressive"):
        marks = finite.marks + tuple(mark for mark in closing[0].marks if mark not in finite.marks)
        finite, closing = Word(verb.prefix + finite.text, marks), []
    return [*(front or []), *middle, *closing, finite]


def german_infinitive(clause: Clause, role: str, with_zu: bool = True, particle: Word | None = None) -> Words:
    """Objects, then (zu) and the infinitive; zu goes into a separable verb."""
    verb = clause.predicate.verb
    assert verb is not None
    middle = _german_middle(clause, role, particle, with_subject=False, with_time=True)
    marks = _verb_marks(verb, role)
    if not with_zu:
        return [*middle, Word(verb.full_infinitive, marks)]
    zu = role + ".to"
    if verb.prefix:
        return [*middle, Word(verb.prefix + "zu" + verb.infinitive, (zu, *marks))]
    return [*middle, Word("zu", (zu,)), Word(verb.infinitive, marks)]
