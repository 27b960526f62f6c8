"""Noun phrases and what is built around them, each with its English and its German rendering.

A phrase is rendered for a role, a short string unique in its sentence; the marks of its words begin with it, so that
the same phrase may occur twice in a sentence without its links getting mixed up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rela.toy.adjectives import Adjective
from rela.toy.english import indefinite_article
from rela.toy.german import ADJECTIVE_ENDINGS, CONTRACTIONS, DEFINITE, RELATIVE
from rela.toy.nouns import Noun
from rela.toy.particles import KEIN, THE, A, Determiner, Fixed
from rela.toy.words import Word, Words


class Phrase(Protocol):
    """Anything that renders itself in both languages without being told a case."""

    def english(self, role: str) -> Words: ...

    def german(self, role: str) -> Words: ...


class NounPhrase(Protocol):
    """A phrase with a person and a case."""

    @property
    def person(self) -> str: ...

    @property
    def is_definite(self) -> bool: ...

    @property
    def is_pronoun(self) -> bool: ...

    def english(self, role: str, is_subject: bool = False) -> Words: ...

    def german(self, role: str, case: str, negation: str = "") -> Words: ...


def _noun_marks(noun: Noun, role: str) -> tuple[str, ...]:
    """One mark for each English word of the noun: a German compound bears them all."""
    return (role + ".n0", role + ".n1") if noun.is_compound else (role + ".n0",)


def _english_noun(noun: Noun, number: str, role: str) -> Words:
    texts = noun.english if number == "s" else noun.english_plural
    return [Word(text, (mark,)) for text, mark in zip(texts, _noun_marks(noun, role), strict=True)]


@dataclass(frozen=True, eq=False, slots=True)
class Nominal:
    """A determiner, perhaps an adjective, and a noun: my old kitchen table."""

    determiner: Determiner
    number: str
    adjective: Adjective | None
    noun: Noun
    is_pronoun = False

    @property
    def person(self) -> str:
        return "3" + self.number

    @property
    def is_definite(self) -> bool:
        return self.determiner.definite

    @property
    def gender(self) -> str:
        return self.noun.gender if self.number == "s" else "p"

    def english(self, role: str, is_subject: bool = False) -> Words:
        words = _english_noun(self.noun, self.number, role)
        if self.adjective:
            words.insert(0, Word(self.adjective.english, (role + ".a",)))
        determiner = self.determiner.english if self.number == "s" else self.determiner.english_plural
        if self.determiner is A:
            determiner = indefinite_article(words[0].text)
        if determiner:
            words.insert(0, Word(determiner, (role + ".d",)))
        return words

    def german(self, role: str, case: str, negation: str = "") -> Words:
        """The German words; `negation` is the mark of an English "not" that German puts into kein."""
        gender = self.gender
        determiner = KEIN if negation else self.determiner
        words = []
        if text := determiner.german_form(case, gender):
            words.append(Word(text, (role + ".d", negation) if negation else (role + ".d",)))
        if self.adjective:
            ending = ADJECTIVE_ENDINGS[determiner.declension][case][gender]
            words.append(Word(self.adjective.stem + ending, (role + ".a",)))
        words.append(Word(self.noun.german[self.number][case], _noun_marks(self.noun, role)))
        return words


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    """A personal pronoun."""

    person: str
    english_subject: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    is_definite = True
    is_pronoun = True

    def english(self, role: str, is_subject: bool = False) -> Words:
        return [Word(self.english_subject if is_subject else self.english_object, (role + ".n",))]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        text = {"nom": self.nominative, "acc": self.accusative, "dat": self.dative}[case]
        return [Word(text, (role + ".n",))]


@dataclass(frozen=True, eq=False, slots=True)
class Name:
    """A first name, the same in both languages."""

    text: str
    person = "3s"
    is_definite = True
    is_pronoun = False

    def english(self, role: str, is_subject: bool = False) -> Words:
        return [Word(self.text, (role + ".n",))]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        return [Word(self.text, (role + ".n",))]


@dataclass(frozen=True, eq=False, slots=True)
class OwnedNoun:
    """A noun whose owner is named beside it: what the two kinds of owner share."""

    noun: Noun
    number: str
    is_definite = True
    is_pronoun = False

    @property
    def person(self) -> str:
        return "3" + self.number

    def english_noun(self, role: str) -> Words:
        return _english_noun(self.noun, self.number, role)

    def german_noun(self, role: str, case: str) -> Word:
        return Word(self.noun.german[self.number][case], _noun_marks(self.noun, role))


@dataclass(frozen=True, eq=False, slots=True)
class NamedOwner(OwnedNoun):
    """Anna 's dog, Annas Hund: the name and its 's are one German word."""

    owner: Name

    def english(self, role: str, is_subject: bool = False) -> Words:
        mark = (role + ".o",)
        return [Word(self.owner.text, mark), Word("'s", mark), *self.english_noun(role)]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        return [Word(self.owner.text + "s", (role + ".o",)), self.german_noun(role, case)]


@dataclass(frozen=True, eq=False, slots=True)
class GenitiveOwner(OwnedNoun):
    """The teacher 's dog, der Hund des Lehrers: the dog's article is German alone, and 's is the article's case."""

    owner: Nominal

    def english(self, role: str, is_subject: bool = False) -> Words:
        # The determiner's mark: case is what an 's says, and the determiner is where German says it.
        return [*self.owner.english(role + "o"), Word("'s", (role + "o.d",)), *self.english_noun(role)]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        article = Word(DEFINITE[case][self.noun.gender if self.number == "s" else "p"])
        return [article, self.german_noun(role, case), *self.owner.german(role + "o", "gen")]


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """Two noun phrases joined by and: a plural."""

    first: NounPhrase
    second: NounPhrase
    person = "3p"
    is_definite = True
    is_pronoun = False

    def english(self, role: str, is_subject: bool = False) -> Words:
        conjunction = Word("and", (role + ".and",))
        return [*self.first.english(role + "1", is_subject), conjunction, *self.second.english(role + "2", is_subject)]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        conjunction = Word("und", (role + ".and",))
        return [*self.first.german(role + "1", case), conjunction, *self.second.german(role + "2", case)]


@dataclass(frozen=True, eq=False, slots=True)
class RelativePronoun:
    """who or which, and the German der, die, das that agrees with the noun before it."""

    head: Nominal
    is_definite = True
    is_pronoun = True

    @property
    def person(self) -> str:
        return self.head.person

    def english(self, role: str, is_subject: bool = False) -> Words:
        return [Word("who" if "person" in self.head.noun.tags else "which", (role + ".rel",))]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        return [Word(RELATIVE[case][self.head.gender], (role + ".rel",))]


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """A question word in the place of a noun phrase: who or what."""

    english_text: str
    german_text: str
    person = "3s"
    is_definite = True
    is_pronoun = True

    def english(self, role: str, is_subject: bool = False) -> Words:
        return [Word(self.english_text, (role + ".n",))]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        return [Word(self.german_text, (role + ".n",))]


def _contracted(preposition: Word, words: Words) -> Words:
    """The preposition and a phrase with a definite article, drawn together where German does so."""
    article, *others = words
    if text := CONTRACTIONS.get((preposition.text, article.text)):
        return [Word(text, preposition.marks + article.marks), *others]
    return [preposition, *words]


@dataclass(frozen=True, eq=False, slots=True)
class Prepositional:
    """A preposition and its noun phrase: in the garden, im Garten."""

    english_preposition: tuple[str, ...]
    german_preposition: str
    case: str
    phrase: NounPhrase
    contracts: bool = True  # im Garten, but sie denkt an das Kind
    after_place = False

    def english(self, role: str) -> Words:
        mark = (role + ".p",)
        return [*[Word(text, mark) for text in self.english_preposition], *self.phrase.english(role)]

    def german(self, role: str) -> Words:
        preposition = Word(self.german_preposition, (role + ".p",))
        words = self.phrase.german(role, self.case)
        if self.contracts and isinstance(self.phrase, Nominal) and self.phrase.determiner is THE:
            return _contracted(preposition, words)
        return [preposition, *words]


@dataclass(frozen=True, eq=False, slots=True)
class Property:
    """A predicate adjective, perhaps with a degree: very cold."""

    adjective: Adjective
    degree: Fixed | None = None
    after_place = False

    def english(self, role: str) -> Words:
        degree = self.degree.english(role + "d") if self.degree else []
        return [*degree, Word(self.adjective.english, (role + ".a",))]

    def german(self, role: str) -> Words:
        degree = self.degree.german(role + "d") if self.degree else []
        return [*degree, Word(self.adjective.german, (role + ".a",))]


@dataclass(frozen=True, eq=False, slots=True)
class Profession:
    """A profession as predicate: English has an article, German none, and another word for a woman."""

    noun: Noun
    is_woman: bool
    after_place = False

    def english(self, role: str) -> Words:
        words = _english_noun(self.noun, "s", role)
        return [Word(indefinite_article(words[0].text)), *words]

    def german(self, role: str) -> Words:
        text = self.noun.feminine if self.is_woman else self.noun.german["s"]["nom"]
        return [Word(text or "", _noun_marks(self.noun, role))]


@dataclass(frozen=True, eq=False, slots=True)
class Comparison:
    """Bigger than the cat, or as big as the cat."""

    adjective: Adjective
    is_equal: bool
    standard: NounPhrase
    after_place = False

    def english(self, role: str) -> Words:
        standard = self.standard.english(role + "c")
        mark = (role + ".a",)
        if self.is_equal:
            return [
                Word("as", (role + ".so",)),
                Word(self.adjective.english, mark),
                Word("as", (role + ".as",)),
                *standard,
            ]
        texts: Sequence[str] = self.adjective.comparative or ()
        return [*[Word(text, mark) for text in texts], Word("than", (role + ".as",)), *standard]

    def german(self, role: str) -> Words:
        standard = self.standard.german(role + "c", "nom")
        mark = (role + ".a",)
        if self.is_equal:
            return [
                Word("so", (role + ".so",)),
                Word(self.adjective.german, mark),
                Word("wie", (role + ".as",)),
                *standard,
            ]
        return [Word(self.adjective.german_comparative, mark), Word("als", (role + ".as",)), *standard]


@dataclass(frozen=True, eq=False, slots=True)
class Instrument:
    """What is played: English says the guitar, German Gitarre."""

    noun: Noun
    person = "3s"
    is_definite = False
    is_pronoun = False

    def english(self, role: str, is_subject: bool = False) -> Words:
        return [Word("the"), *_english_noun(self.noun, "s", role)]

    def german(self, role: str, case: str, negation: str = "") -> Words:
        return [Word(self.noun.german["s"]["nom"], _noun_marks(self.noun, role))]
