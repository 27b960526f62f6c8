"""The constructions: for each kind of sentence, the space of all sentences of that kind."""

from collections.abc import Callable
from functools import cache

from rela.toy.complex_sentences import (
    because_clauses,
    conditionals,
    infinitives,
    purposes,
    that_clauses,
    whether_clauses,
)
from rela.toy.coordination import clause_coordinations, noun_coordinations, verb_coordinations
from rela.toy.moments import (
    future_moments,
    modal_moments,
    negated_moments,
    past_moments,
    perfect_moments,
    polar_moments,
    present_moments,
)
from rela.toy.questions import content_questions
from rela.toy.relative_clauses import relative_clauses
from rela.toy.selection import statements
from rela.toy.sentences import Sentence, ask, end_with, state
from rela.toy.simple_sentences import (
    comparisons,
    existentials,
    instruments,
    passives,
    positions,
    possessions,
    professions,
    qualities,
    suggestions,
)
from rela.toy.spaces import Items, Product, Space, Union
from rela.toy.verb_groups import (
    DATIVE,
    DITRANSITIVE,
    EVENTS,
    INTRANSITIVE,
    MOTION,
    ORDINARY,
    PREPOSITIONAL,
    REFLEXIVE_VERBS,
    SEPARABLE,
    SHORT,
    TRANSITIVE,
)

_BUILDERS: dict[str, Callable[[], Space[Sentence]]] = {
    "transitive": lambda: statements(state, TRANSITIVE, present_moments),
    "intransitive": lambda: statements(state, INTRANSITIVE, present_moments),
    "motion": lambda: statements(state, MOTION, present_moments),
    "dative": lambda: statements(state, DATIVE, present_moments),
    "ditransitive": lambda: statements(state, DITRANSITIVE, present_moments),
    "prepositional object": lambda: statements(state, PREPOSITIONAL, present_moments),
    "separable verb": lambda: statements(state, SEPARABLE, present_moments),
    "reflexive": lambda: statements(state, REFLEXIVE_VERBS, present_moments),
    "instrument": instruments,
    "quality": qualities,
    "position": positions,
    "profession": professions,
    "comparison": comparisons,
    "existence": existentials,
    "possession": possessions,
    "modal": lambda: statements(state, EVENTS, modal_moments),
    "future": lambda: statements(state, EVENTS, future_moments),
    "perfect": lambda: statements(state, EVENTS, perfect_moments),
    "past": lambda: statements(state, EVENTS, past_moments),
    "passive": passives,
    "negation": lambda: statements(state, SHORT, negated_moments, "negated"),
    "suggestion": suggestions,
    "polar question": lambda: statements(ask, ORDINARY, polar_moments),
    "content question": content_questions,
    "that clause": that_clauses,
    "whether clause": whether_clauses,
    "because clause": because_clauses,
    "conditional": conditionals,
    "relative clause": relative_clauses,
    "infinitive": infinitives,
    "purpose": purposes,
    "noun coordination": noun_coordinations,
    "verb coordination": verb_coordinations,
    "clause coordination": clause_coordinations,
}


CONSTRUCTIONS: tuple[str, ...] = tuple(_BUILDERS)
# How what is no question ends. Nothing before it tells which, so a translation has to look.
_STOPS = Union([Items("."), Items("!")], [2, 1])


@cache
def construction(name: str) -> Space[Sentence]:
    """The space of all sentences of one construction."""
    if name not in _BUILDERS:
        raise ValueError(f"no construction {name!r}; there are {', '.join(CONSTRUCTIONS)}")
    sentences = _BUILDERS[name]()
    return sentences if "question" in name else Product(end_with, sentences, _STOPS)
