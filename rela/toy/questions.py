"""Questions that ask for a part of the sentence: who, what, which, where, when, why."""

from functools import partial

from rela.toy.clauses import (
    Predicate,
    english_question,
    english_statement,
    german_question,
    german_statement,
)
from rela.toy.moments import Moment, clause, plain_moments, question_moments
from rela.toy.nouns import Noun, nouns_tagged
from rela.toy.particles import DENN, WHICH
from rela.toy.phrases import Asked, Nominal, NounPhrase
from rela.toy.selection import PRONOUNS, anybody, predicates, statements
from rela.toy.sentences import Sentence, linked, make_sentence
from rela.toy.spaces import Items, Product, Space, Union, each
from rela.toy.verb_groups import EVENTS, INTRANSITIVE, MOTION, SEPARABLE, TRANSITIVE
from rela.toy.verbs import Verb
from rela.toy.words import Word, Words

_WHO, _WHAT = Asked("who", "wer"), Asked("what", "was")


def content_questions() -> Space[Sentence]:
    """What does Anna buy? Which book does she read? Where does she live? Who helps her? When, and why?"""
    things = [verb for verb in TRANSITIVE + SEPARABLE if verb.objects and "person" not in verb.objects]
    return Union(
        [
            each([verb for verb in things if verb.government == ("acc",)], _about_object),
            each([verb for verb in INTRANSITIVE + MOTION if verb.objects and verb.base != "come"], _about_place),
            each(EVENTS, _about_subject),
            each((linked("when", "wann"), linked("why", "warum")), _about_reason),
        ],
        [3, 1, 1.5, 1.5],
    )


def _ask(front: tuple[Words, Words], subject: NounPhrase, predicate: Predicate, moment: Moment) -> Sentence:
    """A question that begins with `front`, given in both languages."""
    said = clause(subject, predicate, moment)
    return make_sentence(english_question(said, "a", front[0]), german_question(said, "a", front[1]), "?")


def _about_object(verb: Verb) -> Space[Sentence]:
    """What does Anna buy? Which book does Anna buy?"""
    what = (_WHAT.english("ao0"), _WHAT.german("ao0", "acc"))

    def which(subject: NounPhrase, noun: Noun, number: str, moment: Moment) -> Sentence:
        phrase = Nominal(WHICH, number, None, noun)
        front = (phrase.english("ao0"), phrase.german("ao0", "acc"))
        return _ask(front, subject, Predicate(verb), moment)

    counted = [noun for noun in nouns_tagged(*verb.objects) if noun.tags.isdisjoint(("mass", "kin"))]
    asked_what = Product(partial(_ask, what), anybody(), Items([Predicate(verb)]), question_moments(verb))
    asked_which = Product(which, anybody(), Items(counted), Items("sp"), question_moments(verb))
    return Union([asked_what, asked_which], [1, 2])


def _about_place(verb: Verb) -> Space[Sentence]:
    """Where does Anna live?"""
    where, wo = linked("where", "wohin" if "whither" in verb.flags else "wo")
    return Product(partial(_ask, ([where], [wo])), anybody(), Items([Predicate(verb)]), question_moments(verb))


def _about_subject(verb: Verb) -> Space[Sentence]:
    """Who helps her?"""

    def make(predicate: Predicate, moment: Moment) -> Sentence:
        said = clause(_WHO, predicate, moment)
        return make_sentence(english_statement(said, "a"), german_statement(said, "a", particle=DENN), "?")

    return Product(make, predicates(verb, "object", PRONOUNS), plain_moments(verb))


def _about_reason(words: tuple[Word, Word]) -> Space[Sentence]:
    """When, or why, does Anna sing?"""
    front = ([words[0]], [words[1]])
    verbs = tuple(verb for verb in EVENTS if verb.government != ("dat", "acc"))
    # English does not ask when something has happened, only when it happened.
    moments = partial(question_moments, with_perfect=False)
    return statements(partial(_ask, front), verbs, moments, with_animals=False)
