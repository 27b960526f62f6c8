"""German inflection: articles, adjectives, pronouns, nouns and verbs.

Cases are "nom", "acc", "dat", "gen"; genders "m", "f", "n", and "p" for the plural, which has none; persons "1s", "2s",
"3s", "1p", "3p" (the grammar has no second person plural).
"""

from collections.abc import Mapping

from rela.toy.english import PERSONS

Paradigm = Mapping[str, Mapping[str, str]]  # case, then gender


def _paradigm(nominative: str, accusative: str, dative: str, genitive: str) -> Paradigm:
    """A table from four rows of four forms: masculine, feminine, neuter, plural; "-" is the empty ending."""
    rows = {"nom": nominative, "acc": accusative, "dat": dative, "gen": genitive}
    return {
        case: dict(zip("mfnp", [form.strip("-") for form in row.split()], strict=True)) for case, row in rows.items()
    }


DEFINITE = _paradigm("der die das die", "den die das die", "dem der dem den", "des der des der")
# dieser, jeder, welcher
DIESER_ENDINGS = _paradigm("er e es e", "en e es e", "em er em en", "es er es er")
# ein, kein, mein
EIN_ENDINGS = _paradigm("- e - e", "en e - e", "em er em en", "es er es er")
RELATIVE = _paradigm("der die das die", "den die das die", "dem der dem denen", "dessen deren dessen deren")

# Endings of adjectives: weak after der, mixed after ein, strong where nothing before the adjective shows the case.
ADJECTIVE_ENDINGS = {
    "weak": _paradigm("e e e en", "en e e en", "en en en en", "en en en en"),
    "mixed": _paradigm("er e es en", "en e es en", "en en en en", "en en en en"),
    "strong": _paradigm("er e es e", "en e es e", "em er em en", "en er en er"),
}

CONTRACTIONS = {
    ("an", "das"): "ans",
    ("an", "dem"): "am",
    ("bei", "dem"): "beim",
    ("in", "das"): "ins",
    ("in", "dem"): "im",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}

REFLEXIVE = dict(zip(PERSONS, ("mich", "dich", "sich", "uns", "sich"), strict=True))


def _present(forms: str) -> dict[str, str]:
    return dict(zip(PERSONS, forms.split(), strict=True))


SEIN = _present("bin bist ist sind sind")
SEIN_PAST = _present("war warst war waren waren")
HABEN = _present("habe hast hat haben haben")
WERDEN = _present("werde wirst wird werden werden")
WERDEN_PAST = _present("wurde wurdest wurde wurden wurden")

_IRREGULAR_PRESENT = {
    "haben": HABEN,
    "mögen": _present("mag magst mag mögen mögen"),
    "wissen": _present("weiß weißt weiß wissen wissen"),
    "können": _present("kann kannst kann können können"),
    "müssen": _present("muss musst muss müssen müssen"),
    "sollten": _present("sollte solltest sollte sollten sollten"),
    "dürfen": _present("darf darfst darf dürfen dürfen"),
    "wollen": _present("will willst will wollen wollen"),
    "möchten": _present("möchte möchtest möchte möchten möchten"),
    "werden": WERDEN,
}


def present(infinitive: str, third_singular: str | None = None) -> dict[str, str]:
    """The present tense by person; `third_singular` where the vowel changes (liest, fährt)."""
    if infinitive in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[infinitive]
    stem = infinitive.removesuffix("en") if infinitive.endswith("en") else infinitive.removesuffix("n")
    needs_e = stem.endswith(("t", "d", "chn", "ffn", "gn"))  # arbeitet, findet, zeichnet, öffnet, regnet
    third = third_singular or stem + ("et" if needs_e else "t")
    # liest, isst, sitzt: after a sibilant the second person loses its s
    second = third if third[:-1].endswith(("s", "ß", "z", "x")) else third[:-1] + "st"
    return dict(zip(PERSONS, (stem + "e", second, third, infinitive, infinitive), strict=True))


def dative_plural(plural: str) -> str:
    """The plural with the -n of the dative."""
    return plural if plural.endswith(("n", "s")) else plural + "n"


def genitive_singular(nominative: str, gender: str) -> str:
    """The regular genitive: -es after a sibilant, else -s; feminine nouns take nothing."""
    if gender == "f":
        return nominative
    return nominative + ("es" if nominative.endswith(("s", "ß", "x", "z", "sch")) else "s")
