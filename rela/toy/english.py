"""English inflection: regular forms by rule, the irregular auxiliaries by table."""

PERSONS = ("1s", "2s", "3s", "1p", "3p")

BE = dict(zip(PERSONS, ("am", "are", "is", "are", "are"), strict=True))
BE_PAST = dict(zip(PERSONS, ("was", "were", "was", "were", "were"), strict=True))
HAVE = dict(zip(PERSONS, ("have", "have", "has", "have", "have"), strict=True))
DO = dict(zip(PERSONS, ("do", "do", "does", "do", "do"), strict=True))

_VOWELS = "aeiou"
_SIBILANTS = ("s", "x", "sh", "ch")
# Verbs that double their last consonant before -ing and -ed; spelling alone does not tell.
_DOUBLING = {"begin", "cut", "forget", "get", "plan", "put", "run", "sit", "swim", "travel"}
# Written with a vowel, spoken with a consonant.
_SPOKEN_CONSONANT = ("university", "useful")


def _ends_in_consonant_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in _VOWELS


def plural(noun: str) -> str:
    """The regular plural of a noun."""
    if _ends_in_consonant_y(noun):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(_SIBILANTS) else "s")


def third_person(verb: str) -> str:
    """The form after he, she and it."""
    if verb == "have":
        return "has"
    if _ends_in_consonant_y(verb):
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith((*_SIBILANTS, "o")) else "s")


def past(verb: str) -> str:
    """The regular past tense, which is also the regular participle."""
    if verb.endswith("e"):
        return verb + "d"
    if _ends_in_consonant_y(verb):
        return verb[:-1] + "ied"
    return (verb + verb[-1] if verb in _DOUBLING else verb) + "ed"


def ing(verb: str) -> str:
    """The form of the progressive."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return (verb + verb[-1] if verb in _DOUBLING else verb) + "ing"


def indefinite_article(following: str) -> str:
    """a or an, by the word that follows."""
    vowel = following[0].lower() in _VOWELS and not following.startswith(_SPOKEN_CONSONANT)
    return "an" if vowel else "a"
