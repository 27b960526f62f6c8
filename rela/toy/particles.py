"""The small words: determiners, pronouns, names, numbers, modal particles, and fixed adverbials with their links."""

from dataclasses import dataclass

from rela.toy.german import DEFINITE, DIESER_ENDINGS, EIN_ENDINGS, Paradigm
from rela.toy.words import Word, Words


@dataclass(frozen=True, eq=False)
class Determiner:
    """What stands before a noun, and which endings it asks of an adjective in German."""

    english: str
    english_plural: str
    german: str  # the stem before the endings, or the whole word
    endings: Paradigm | None  # None: the word does not change
    declension: str  # "weak", "mixed" or "strong"
    numbers: str  # "s", "p" or both
    definite: bool

    def german_form(self, case: str, gender: str) -> str:
        """The German word, empty where the noun stands bare."""
        return self.german + self.endings[case][gender] if self.endings else self.german


THE = Determiner("the", "the", "", DEFINITE, "weak", "sp", True)
A = Determiner("a", "", "ein", EIN_ENDINGS, "mixed", "s", False)
THIS = Determiner("this", "these", "dies", DIESER_ENDINGS, "weak", "sp", True)
EVERY = Determiner("every", "", "jed", DIESER_ENDINGS, "weak", "s", True)
WHICH = Determiner("which", "which", "welch", DIESER_ENDINGS, "weak", "sp", True)
KEIN = Determiner("", "", "kein", EIN_ENDINGS, "mixed", "sp", False)  # how German says not … a
BARE = Determiner("", "", "", None, "strong", "sp", False)
MANY = Determiner("", "many", "viel", DIESER_ENDINGS, "strong", "p", False)
POSSESSIVES = tuple(
    Determiner(word, word, stem, EIN_ENDINGS, "mixed", "sp", True)
    for word, stem in (
        ("my", "mein"),
        ("your", "dein"),
        ("his", "sein"),
        ("her", "ihr"),
        ("our", "unser"),
        ("their", "ihr"),
    )
)
NUMBERS = tuple(
    Determiner("", word, german, None, "strong", "p", False)
    for word, german in (
        ("two", "zwei"),
        ("three", "drei"),
        ("four", "vier"),
        ("five", "fünf"),
        ("six", "sechs"),
        ("seven", "sieben"),
        ("eight", "acht"),
        ("nine", "neun"),
        ("ten", "zehn"),
        ("twelve", "zwölf"),
    )
)

# person, English subject and object, German nominative, accusative, dative
PRONOUNS = (
    ("1s", "I", "me", "ich", "mich", "mir"),
    ("2s", "you", "you", "du", "dich", "dir"),
    ("3s", "he", "him", "er", "ihn", "ihm"),
    ("3s", "she", "her", "sie", "sie", "ihr"),
    ("1p", "we", "us", "wir", "uns", "uns"),
    ("3p", "they", "them", "sie", "sie", "ihnen"),
)

WOMEN = ("Anna", "Clara", "Emma", "Julia", "Lisa", "Maria")
MEN = ("David", "Martin", "Michael", "Paul", "Peter", "Robert")


@dataclass(frozen=True, eq=False)
class Fixed:
    """A fixed expression of both languages with the links between its words; no link for words without counterpart."""

    english_words: tuple[str, ...]
    german_words: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    after_place: bool = False  # "to Berlin by train", where German says "mit dem Zug nach Berlin"

    def english(self, role: str) -> Words:
        """The English words, each marked with its position."""
        return [Word(text, (f"{role}.{position}",)) for position, text in enumerate(self.english_words)]

    def german(self, role: str) -> Words:
        """The German words, marked with the English positions they are linked to."""
        return [
            Word(text, tuple(f"{role}.{source}" for source, target in self.links if target == position))
            for position, text in enumerate(self.german_words)
        ]


def _fixed(table: str, after_place: bool = False) -> tuple[Fixed, ...]:
    """Expressions from rows `English | German | links`; without links, word for word."""
    expressions = []
    for row in table.strip().splitlines():
        english_words, german_words, *links = (cell.split() for cell in row.split("|"))
        pairs = links[0] if links else [f"{position}-{position}" for position in range(len(english_words))]
        parsed = tuple((int(source), int(target)) for source, target in (pair.split("-") for pair in pairs))
        expressions.append(Fixed(tuple(english_words), tuple(german_words), parsed, after_place))
    return tuple(expressions)


HABITS = _fixed("""
    every day | jeden Tag
    every week | jede Woche
    every year | jedes Jahr
    in the morning | am Morgen | 0-0 1-0 2-1
    in the afternoon | am Nachmittag | 0-0 1-0 2-1
    in the evening | am Abend | 0-0 1-0 2-1
    at night | in der Nacht | 0-0 1-2
    on Mondays | montags | 0-0 1-0
    on Fridays | freitags | 0-0 1-0
    on Sundays | sonntags | 0-0 1-0
    in summer | im Sommer
    in winter | im Winter
""")
PRESENT_TIMES = _fixed("""
    now | jetzt
    today | heute
    at the moment | im Moment | 0-0 1-0 2-1
    this morning | heute Morgen
    this afternoon | heute Nachmittag
""")
PAST_TIMES = _fixed("""
    yesterday | gestern
    yesterday evening | gestern Abend
    last week | letzte Woche
    last month | letzten Monat
    last year | letztes Jahr
    last summer | letzten Sommer
    two days ago | vor zwei Tagen | 0-1 1-2 2-0
    three weeks ago | vor drei Wochen | 0-1 1-2 2-0
    a year ago | vor einem Jahr | 0-1 1-2 2-0
""")
FUTURE_TIMES = _fixed("""
    tomorrow | morgen
    soon | bald
    later | später
    tonight | heute Abend | 0-0 0-1
    next week | nächste Woche
    next month | nächsten Monat
    next year | nächstes Jahr
    in two days | in zwei Tagen
    in three weeks | in drei Wochen
""")
FREQUENCIES = _fixed("""
    often | oft
    always | immer
    never | nie
    sometimes | manchmal
    rarely | selten
    usually | meistens
""")
PERFECT_FREQUENCIES = _fixed("""
    already | schon
    never | nie
    often | oft
    just | gerade
""")
MANNERS = _fixed("""
    loudly | laut
    quietly | leise
    alone | allein
    a lot | viel | 0-0 1-0
""")
MEANS = _fixed(
    """
    by train | mit dem Zug | 0-0 1-2
    by bus | mit dem Bus | 0-0 1-2
    by car | mit dem Auto | 0-0 1-2
    by ship | mit dem Schiff | 0-0 1-2
""",
    after_place=True,
)
# Where English has no article, German may need one. Keys are tags beside those of the nouns for places.
FIXED_PLACES = {
    "here": _fixed("""
        here | hier
        there | dort
        outside | draußen
        at home | zu Hause
    """),
    "school": _fixed("""
        in school | in der Schule | 0-0 1-2
        at work | bei der Arbeit | 0-0 1-2
    """),
    "bed": _fixed("""
        in bed | im Bett
    """),
    "town": _fixed("""
        in Berlin | in Berlin
        in Hamburg | in Hamburg
        in Munich | in München
        in Vienna | in Wien
        in Rome | in Rom
        in Germany | in Deutschland
        in France | in Frankreich
        in Italy | in Italien
        in Switzerland | in der Schweiz | 0-0 1-2
        in Turkey | in der Türkei | 0-0 1-2
    """),
    "near": _fixed("""
        home | nach Hause | 0-0 0-1
        to work | zur Arbeit
        to school | in die Schule | 0-0 1-2
    """),
    "bedtime": _fixed("""
        to bed | ins Bett
    """),
    "far": _fixed("""
        to Berlin | nach Berlin
        to Hamburg | nach Hamburg
        to Munich | nach München
        to Vienna | nach Wien
        to Rome | nach Rom
        to Germany | nach Deutschland
        to France | nach Frankreich
        to Italy | nach Italien
        to Switzerland | in die Schweiz | 0-0 1-2
        to Turkey | in die Türkei | 0-0 1-2
    """),
}
# Modal particles: what spoken German puts into a statement, a question and a request, and English leaves to the voice.
JA, DENN, DOCH = Word("ja"), Word("denn"), Word("doch")
DEGREES = _fixed("""
    very | sehr
    too | zu
    quite | ziemlich
""")
# Where small things lie; German takes the dative.
POSITIONS = (
    (("on",), "auf"),
    (("under",), "unter"),
    (("behind",), "hinter"),
    (("next", "to"), "neben"),
    (("in", "front", "of"), "vor"),
)
