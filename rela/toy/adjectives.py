"""The adjectives: both languages, comparatives, and the tags of the nouns they describe.

A row reads `english[, comparative] | German[, comparative[, stem before endings]] | tags`. A missing English
comparative is "more …"; "-" says that the adjective has none.
"""

from dataclasses import dataclass
from functools import cache

from rela.toy.nouns import Noun

_TABLE = """
    old, older | alt, älter | person animal text vehicle furniture building clothes device
    young, younger | jung, jünger | person animal
    tall, taller | groß, größer | person
    big, bigger | groß, größer | animal vehicle furniture thing fruit building room open water
    small, smaller | klein, kleiner | animal vehicle furniture thing fruit building room open
    new, newer | neu, neuer | text vehicle furniture device clothes building
    beautiful | schön, schöner | thing clothes building open water show
    expensive | teuer, teurer, teur | vehicle furniture device clothes thing
    cheap, cheaper | billig, billiger | vehicle furniture device clothes thing
    fast, faster | schnell, schneller | vehicle transport
    slow, slower | langsam, langsamer | vehicle transport
    strong, stronger | stark, stärker | profession wild
    clever | klug, klüger | person pet
    happy, happier | glücklich, glücklicher | person
    sad, sadder | traurig, trauriger | person tale music
    friendly, friendlier | freundlich, freundlicher | person pet
    famous | berühmt, berühmter | person building text
    rich, richer | reich, reicher | person
    poor, poorer | arm, ärmer | person
    lazy, lazier | faul, fauler | person pet
    tired | müde, müder, müd | person animal
    hungry, hungrier | hungrig, hungriger | person animal
    sick, - | krank, - | person animal
    dangerous | gefährlich, gefährlicher | wild
    hot, hotter | heiß, heißer | dish
    cold, colder | kalt, kälter | drink dish
    warm, warmer | warm, wärmer | clothes room weather
    fresh, fresher | frisch, frischer | food drink
    sweet, sweeter | süß, süßer | fruit baked
    delicious, - | lecker, - | food
    long, longer | lang, länger | text show
    short, shorter | kurz, kürzer | text show
    interesting | interessant, interessanter | text show idea building
    boring | langweilig, langweiliger | text show
    difficult | schwierig, schwieriger | idea
    easy, easier | einfach, einfacher | idea
    important | wichtig, wichtiger | idea
    good, better | gut, besser | text show idea weather
    bad, worse | schlecht, schlechter | text show idea weather
    heavy, heavier | schwer, schwerer | furniture thing
    clean, cleaner | sauber, sauberer | clothes crockery room opening
    dirty, dirtier | schmutzig, schmutziger | clothes crockery room opening
    comfortable | bequem, bequemer | furniture clothes
    modern, - | modern, - | device building furniture
    quiet, quieter | ruhig, ruhiger | room open
    red, - | rot, - | vehicle clothes thing
    blue, - | blau, - | vehicle clothes thing
    green, - | grün, - | vehicle clothes opening
    black, - | schwarz, - | clothes pet
    white, - | weiß, - | clothes animal opening
"""


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective of both languages."""

    english: str
    german: str
    stem: str  # German, before an ending
    comparative: tuple[str, ...] | None  # English: "bigger", or "more" and the adjective
    german_comparative: str
    tags: frozenset[str]

    def fits(self, noun: Noun) -> bool:
        """Whether the adjective makes sense with the noun."""
        return not self.tags.isdisjoint(noun.tags)


def _parse(row: str) -> Adjective:
    english_forms, german_forms, tags = ([part.strip() for part in cell.split(",")] for cell in row.split("|"))
    comparative: tuple[str, ...] | None = ("more", english_forms[0])
    if len(english_forms) > 1:
        comparative = None if english_forms[1] == "-" else (english_forms[1],)
    return Adjective(
        english=english_forms[0],
        german=german_forms[0],
        stem=german_forms[2] if len(german_forms) > 2 else german_forms[0],
        comparative=comparative,
        german_comparative=german_forms[1],
        tags=frozenset(tags[0].split()),
    )


ADJECTIVES = tuple(_parse(row) for row in _TABLE.splitlines() if row.strip())


@cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that make sense with the noun."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.fits(noun))
