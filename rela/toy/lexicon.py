"""The lexicon as a whole: how many entries each language has."""

from rela.toy import particles
from rela.toy.adjectives import ADJECTIVES
from rela.toy.nouns import NOUNS
from rela.toy.verbs import CLAUSE_VERBS, MODALS, PLAY_MUSIC, VERBS, WEATHER_VERBS, WILL

# Words that stand in no table because a construction brings them along.
_CONJUNCTIONS = (
    ("and", "und"),
    ("but", "aber"),
    ("that", "dass"),
    ("whether", "ob"),
    ("because", "weil"),
    ("if", "wenn"),
    ("in order", "um"),
    ("who", "wer"),
    ("what", "was"),
    ("where", "wo"),
    ("where", "wohin"),
    ("when", "wann"),
    ("why", "warum"),
    ("be", "sein"),
    ("let", "lassen"),
    ("it", "es"),
    ("not", "nicht"),
    ("by", "von"),
)


def entries() -> dict[str, set[tuple[str, str]]]:
    """The lexicon by part of speech: pairs of an English and a German base form."""
    determiners = [particles.THE, particles.A, particles.THIS, particles.EVERY, particles.WHICH, particles.MANY]
    determiners += [*particles.POSSESSIVES, *particles.NUMBERS]
    adverbials = [
        *particles.HABITS,
        *particles.PRESENT_TIMES,
        *particles.PAST_TIMES,
        *particles.FUTURE_TIMES,
        *particles.FREQUENCIES,
        *particles.PERFECT_FREQUENCIES,
        *particles.MANNERS,
        *particles.MEANS,
        *particles.DEGREES,
        *(item for items in particles.FIXED_PLACES.values() for item in items),
    ]
    verbs = (*VERBS, *CLAUSE_VERBS, *WEATHER_VERBS, PLAY_MUSIC)
    return {
        "noun": {(" ".join(noun.english), noun.german["s"]["nom"]) for noun in NOUNS},
        "verb": {(" ".join((verb.base, *verb.particle)), verb.full_infinitive) for verb in verbs}
        | {(" ".join(modal.english), modal.present["3p"]) for modal in (*MODALS, WILL)},
        "adjective": {(adjective.english, adjective.german) for adjective in ADJECTIVES},
        "name": {(name, name) for name in (*particles.WOMEN, *particles.MEN)},
        "pronoun": {(forms[1], forms[3]) for forms in particles.PRONOUNS},
        "determiner": {(item.english or item.english_plural, item.german or "der") for item in determiners},
        "preposition": {(" ".join(english), german) for english, german in particles.POSITIONS}
        | {(verb.government[0], verb.government[1]) for verb in VERBS if len(verb.government) == 3},
        "adverbial": {(" ".join(item.english_words), " ".join(item.german_words)) for item in adverbials},
        "other": set(_CONJUNCTIONS),
    }


def lexicon_size() -> dict[str, int]:
    """Entries by part of speech, and the number of different base forms on each side as "english" and "german"."""
    by_part = entries()
    sizes = {part: len(pairs) for part, pairs in by_part.items()}
    for side, language in enumerate(("english", "german")):
        sizes[language] = len({(part, pair[side]) for part, pairs in by_part.items() for pair in pairs})
    return sizes
