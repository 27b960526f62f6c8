"""The verbs: English and German forms, what they govern, and which nouns make sense with them.

A row reads
`english[, past, participle] | German, participle[, third person] | government | subjects > objects | flags`.

- English "pick up" has a particle; the flag `movable` says that a pronoun goes between ("picks him up").
- German "an-rufen" is separable, and its participle is given without the prefix ("gerufen" for "angerufen").
- Government: "-" nothing, "acc", "dat", "dat acc", or an English and a German preposition with its case
  ("for auf acc").
- Flags: `sein` for the auxiliary of the perfect, `sich` for reflexive, `simple` for no progressive, `state` for no
  progressive, past or passive, `calm` for what animals do as well, `where` for a place that cannot be left out,
  `whither` for a direction, `means` for a means of transport, `voice` for what is loud or quiet,
  `lasting` for what has no time of day, `anywhere` for an object that may be followed by a place.
- The objects of a verb that governs nothing are the places where it happens, or the directions in which it leads.
"""

from dataclasses import dataclass, field
from functools import cache

from rela.toy import english, german

_TABLE = """
    read, read, read | lesen, gelesen, liest | acc | person > text | anywhere
    write, wrote, written | schreiben, geschrieben | acc | person > text | anywhere
    translate | übersetzen, übersetzt | acc | person > text
    buy, bought, bought | kaufen, gekauft | acc | person > goods food drink
    sell, sold, sold | verkaufen, verkauft | acc | person > goods food drink | anywhere
    need | brauchen, gebraucht | acc | person > goods | state
    have, had, had | haben, gehabt | acc | person > goods pet idea | state
    eat, ate, eaten | essen, gegessen, isst | acc | person > food | anywhere
    order | bestellen, bestellt | acc | person > food drink
    cook | kochen, gekocht | acc | person > dish
    bake | backen, gebacken, backt | acc | person > baked
    cut, cut, cut | schneiden, geschnitten | acc | person > solid fruit
    drink, drank, drunk | trinken, getrunken | acc | person > drink | anywhere
    see, saw, seen | sehen, gesehen, sieht | acc | person > person animal transport building | simple, anywhere
    hear, heard, heard | hören, gehört | acc | person > person animal music | simple
    find, found, found | finden, gefunden | acc | person > portable clothes | simple
    lose, lost, lost | verlieren, verloren | acc | person > portable clothes | simple
    forget, forgot, forgotten | vergessen, vergessen, vergisst | acc | person > portable idea | simple
    look for | suchen, gesucht | acc | person > portable clothes pet small
    hide, hid, hidden | verstecken, versteckt | acc | person > portable
    steal, stole, stolen | stehlen, gestohlen, stiehlt | acc | person > portable vehicle
    carry | tragen, getragen, trägt | acc | person > portable furniture
    wear, wore, worn | tragen, getragen, trägt | acc | person > clothes
    wash | waschen, gewaschen, wäscht | acc | person > clothes crockery
    clean | putzen, geputzt | acc | person > room opening vehicle
    open | öffnen, geöffnet | acc | person > opening
    close | schließen, geschlossen | acc | person > opening
    repair | reparieren, repariert | acc | person > vehicle device
    paint | malen, gemalt | acc | person > animal fruit
    draw, drew, drawn | zeichnen, gezeichnet | acc | person > animal building
    build, built, built | bauen, gebaut | acc | person > building furniture
    visit | besuchen, besucht | acc | person > person building
    admire | bewundern, bewundert | acc | person > person sight building
    greet | grüßen, gegrüßt | acc | person > person
    meet, met, met | treffen, getroffen, trifft | acc | person > person | anywhere
    ask | fragen, gefragt | acc | person > person
    love | lieben, geliebt | acc | person > person pet | state
    like | mögen, gemocht | acc | person > person animal food drink | state
    know, knew, known | kennen, gekannt | acc | person > person text building music | state
    feed, fed, fed | füttern, gefüttert | acc | person > animal
    understand, understood, understood | verstehen, verstanden | acc | person > idea text language | simple
    explain | erklären, erklärt | acc | person > idea
    solve | lösen, gelöst | acc | person > task
    learn | lernen, gelernt | acc | person > language
    speak, spoke, spoken | sprechen, gesprochen, spricht | acc | person > language

    call | an-rufen, gerufen | acc | person > person
    invite | ein-laden, geladen, lädt | acc | person > person
    pick up | ab-holen, geholt | acc | person > person | movable
    wake up, woke, woken | auf-wecken, geweckt | acc | person > person | movable
    put on, put, put | an-ziehen, gezogen | acc | person > clothes | movable
    take off, took, taken | aus-ziehen, gezogen | acc | person > clothes | movable
    turn on | an-machen, gemacht | acc | person > device | movable
    turn off | aus-machen, gemacht | acc | person > device | movable
    tidy up | auf-räumen, geräumt | acc | person > room | movable
    bring back, brought, brought | zurück-bringen, gebracht | acc | person > portable | movable
    look at | an-sehen, gesehen, sieht | acc | person > sight building
    lock | ab-schließen, geschlossen | acc | person > opening
    get up, got, got | auf-stehen, gestanden | - | person | sein
    fall asleep, fell, fallen | ein-schlafen, geschlafen, schläft | - | person | sein, calm
    come back, came, come | zurück-kommen, gekommen | - | person | sein
    arrive | an-kommen, gekommen | - | person | sein
    go shopping, went, gone | ein-kaufen, gekauft | - | person
    watch television | fern-sehen, gesehen, sieht | - | person

    help | helfen, geholfen, hilft | dat | person > person
    thank | danken, gedankt | dat | person > person
    answer | antworten, geantwortet | dat | person > person
    follow | folgen, gefolgt | dat | person > person animal | sein
    listen to | zu-hören, gehört | dat | person > person
    belong to | gehören, gehört | dat | portable vehicle clothes > person | state

    give, gave, given | geben, gegeben, gibt | dat acc | person > portable text
    show, showed, shown | zeigen, gezeigt | dat acc | person > portable clothes building
    send, sent, sent | schicken, geschickt | dat acc | person > text portable
    bring, brought, brought | bringen, gebracht | dat acc | person > portable drink food
    lend, lent, lent | leihen, geliehen | dat acc | person > portable vehicle
    offer | an-bieten, geboten | dat acc | person > food drink
    tell, told, told | erzählen, erzählt | dat acc | person > tale

    wait | warten, gewartet | for auf acc | person > person transport
    think, thought, thought | denken, gedacht | of an acc | person > person idea
    talk | reden, geredet | about über acc | person > person text idea event
    dream | träumen, geträumt | of von dat | person > vehicle animal clothes
    play | spielen, gespielt | with mit dat | person > pet
    ask | bitten, gebeten | for um acc | person > food drink

    sleep, slept, slept | schlafen, geschlafen, schläft | - | person > here bed room | calm
    play | spielen, gespielt | - | person > here school room open | calm
    wait | warten, gewartet | - | person > here building open | calm
    work | arbeiten, gearbeitet | - | person > here town room building
    sing, sang, sung | singen, gesungen | - | person > here school room building open | voice
    dance | tanzen, getanzt | - | person > here room building open
    laugh | lachen, gelacht | - | person > here school room | voice
    cry | weinen, geweint | - | person > here school bed room | voice
    swim, swam, swum | schwimmen, geschwommen | - | person > wet | sein
    live | wohnen, gewohnt | - | person > town area | where, lasting
    sit, sat, sat | sitzen, gesessen | - | person > here bed room open | where, calm
    stand, stood, stood | stehen, gestanden | - | person > here room building open | where, calm

    go, went, gone | gehen, gegangen | - | person > near bedtime room building open water | sein, whither
    drive, drove, driven | fahren, gefahren, fährt | - | person > near far building | sein, whither
    travel | reisen, gereist | - | person > far | sein, whither, means
    fly, flew, flown | fliegen, geflogen | - | person > far | sein, whither
    run, ran, run | laufen, gelaufen, läuft | - | person > near room building open water | sein, whither, calm
    come, came, come | kommen, gekommen | - | person > near room building open water | sein, whither

    hurry | beeilen, beeilt | - | person | sich
    rest | aus-ruhen, geruht | - | person | sich
    relax | entspannen, entspannt | - | person | sich
    apologise | entschuldigen, entschuldigt | - | person | sich
    sit down, sat, sat | hin-setzen, gesetzt | - | person | sich
    remember | erinnern, erinnert | - an acc | person > person idea event | sich, simple
    complain | beschweren, beschwert | about über acc | person > person food idea | sich
    look forward | freuen, gefreut | to auf acc | person > event | sich
    fall in love, fell, fallen | verlieben, verliebt | with in acc | person > person | sich
"""

# Verbs that stand before a clause or an infinitive.
_CLAUSE_TABLE = """
    know, knew, known | wissen, gewusst | that | person | state
    think, thought, thought | glauben, geglaubt | that | person | state
    say, said, said | sagen, gesagt | that | person | simple
    hope | hoffen, gehofft | that | person | simple
    hear, heard, heard | hören, gehört | that | person | simple
    ask | fragen, gefragt | whether | person | simple
    know, knew, known | wissen, gewusst | whether | person | state
    try | versuchen, versucht | to | person | simple
    hope | hoffen, gehofft | to | person | simple
    promise | versprechen, versprochen, verspricht | to | person | simple
    forget, forgot, forgotten | vergessen, vergessen, vergisst | to | person | simple
    begin, began, begun | beginnen, begonnen | to | person | simple
    plan | planen, geplant | to | person | simple
"""

_WEATHER_TABLE = """
    rain | regnen, geregnet | weather | it
    snow | schneien, geschneit | weather | it
"""

_INSTRUMENT_TABLE = """
    play | spielen, gespielt | music | person > instrument
"""


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages with all the forms the grammar asks for."""

    base: str
    third: str
    past: str
    participle: str
    ing: str
    particle: tuple[str, ...]  # of an English phrasal verb
    infinitive: str  # German, without a separable prefix
    present: dict[str, str]  # German, by person, without a separable prefix
    german_participle: str
    prefix: str  # separable, or empty
    government: tuple[str, ...]
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    flags: frozenset[str] = field(default=frozenset())

    @property
    def full_infinitive(self) -> str:
        """The German infinitive as one word."""
        return self.prefix + self.infinitive

    @property
    def perfect_auxiliary(self) -> dict[str, str]:
        """The present of haben or sein, whichever forms the German perfect."""
        return german.SEIN if "sein" in self.flags else german.HABEN


def _parse(row: str) -> Verb:
    cells = [cell.strip() for cell in row.split("|")]
    english_forms, german_forms = ([part.strip() for part in cell.split(",")] for cell in cells[:2])
    base, *particle = english_forms[0].split()
    past, participle = english_forms[1:] or [english.past(base)] * 2
    prefix, _, infinitive = german_forms[0].rpartition("-")
    subjects, _, objects = cells[3].partition(">")
    flags = frozenset(flag.strip() for flag in cells[4].split(",")) if len(cells) > 4 else frozenset()
    return Verb(
        base=base,
        third=english.third_person(base),
        past=past,
        participle=participle,
        ing=english.ing(base),
        particle=tuple(particle),
        infinitive=infinitive,
        present=german.present(infinitive, german_forms[2] if len(german_forms) > 2 else None),
        german_participle=prefix + german_forms[1],
        prefix=prefix,
        government=tuple(cells[2].split()),
        subjects=tuple(subjects.split()),
        objects=tuple(objects.split()),
        flags=flags,
    )


def _table(rows: str) -> tuple[Verb, ...]:
    return tuple(_parse(row) for row in rows.splitlines() if row.strip())


VERBS = _table(_TABLE)
CLAUSE_VERBS = _table(_CLAUSE_TABLE)
WEATHER_VERBS = _table(_WEATHER_TABLE)
(PLAY_MUSIC,) = _table(_INSTRUMENT_TABLE)


@cache
def verbs_governing(*government: str) -> tuple[Verb, ...]:
    """The verbs of people with exactly this government, in the order of the lexicon."""
    every = (*VERBS, *CLAUSE_VERBS)
    return tuple(verb for verb in every if verb.government == government and "person" in verb.subjects)


(BELONG,) = (verb for verb in VERBS if verb.base == "belong")


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb: English words (the last may be an empty "to") and the German present."""

    english: tuple[str, ...]
    english_third: tuple[str, ...]
    has_to: bool  # followed by a "to" that German does not have
    present: dict[str, str]


def _modal(words: str, infinitive: str, third: str = "", has_to: bool = False) -> Modal:
    english_words = tuple(words.split())
    return Modal(english_words, tuple(third.split()) or english_words, has_to, german.present(infinitive))


CAN = _modal("can", "können")
SHOULD = _modal("should", "sollten")
WILL = _modal("will", "werden")
MODALS = (
    CAN,
    SHOULD,
    _modal("must", "müssen"),
    _modal("may", "dürfen"),
    _modal("want", "wollen", third="wants", has_to=True),
    _modal("would like", "möchten", has_to=True),
)
