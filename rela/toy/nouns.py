"""The nouns: English and German forms, gender, and the tags by which verbs and adjectives choose them.

A row reads `english[, plural] | German[, plural] | gender, flags`. A missing English plural is regular, a missing
German one is like the singular. English of two words for German of one is a compound. Flags: `weak` for the masculines
that take -n or -en outside the nominative, `mass` for what is not counted, `single` for what is used in the singular
only, `own` for people who may be mine or yours, `gen=…` for a genitive that is not regular, `f=…` for the word for a
woman, and any other word is one more tag.
"""

from dataclasses import dataclass
from functools import cache

from rela.toy import english, german

_TABLES = {
    "person profession": """
        teacher | Lehrer | m, f=Lehrerin, own
        doctor | Arzt, Ärzte | m, gen=Arztes, f=Ärztin, own
        baker | Bäcker | m, f=Bäckerin
        farmer | Bauer, Bauern | m, weak, f=Bäuerin
        student | Student, Studenten | m, weak, f=Studentin, own
        pupil | Schüler | m, f=Schülerin, own
        painter | Maler | m, f=Malerin
        writer | Schriftsteller | m, f=Schriftstellerin
        singer | Sänger | m, f=Sängerin
        cook | Koch, Köche | m, f=Köchin, own
        waiter | Kellner | m, f=Kellnerin
        judge | Richter | m, f=Richterin
        bus driver | Busfahrer | m, f=Busfahrerin
        football player | Fußballspieler | m, f=Fußballspielerin
        police officer | Polizist, Polizisten | m, weak, f=Polizistin
    """,
    "person": """
        man, men | Mann, Männer | m, gen=Mannes
        woman, women | Frau, Frauen | f
        child, children | Kind, Kinder | n, gen=Kindes, small
        boy | Junge, Jungen | m, weak, small
        girl | Mädchen | n, small
        neighbour | Nachbar, Nachbarn | m, weak, own
        friend | Freund, Freunde | m, gen=Freundes, own
        guest | Gast, Gäste | m, gen=Gastes, own
        tourist | Tourist, Touristen | m, weak
        customer | Kunde, Kunden | m, weak, own
        thief, thieves | Dieb, Diebe | m, gen=Diebes
        king | König, Könige | m
        queen | Königin, Königinnen | f
        nurse | Krankenschwester, Krankenschwestern | f
    """,
    "person kin": """
        father | Vater, Väter | m, single
        mother | Mutter, Mütter | f, single
        brother | Bruder, Brüder | m
        sister | Schwester, Schwestern | f
        son | Sohn, Söhne | m, gen=Sohnes
        daughter | Tochter, Töchter | f
        uncle | Onkel | m, single
        aunt | Tante, Tanten | f
        grandfather | Großvater, Großväter | m, single
        grandmother | Großmutter, Großmütter | f, single
    """,
    "animal": """
        dog | Hund, Hunde | m, pet
        cat | Katze, Katzen | f, pet
        horse | Pferd, Pferde | n
        cow | Kuh, Kühe | f
        bird | Vogel, Vögel | m, pet
        mouse, mice | Maus, Mäuse | f
        rabbit | Kaninchen | n, pet
        goat | Ziege, Ziegen | f
        duck | Ente, Enten | f
        bear | Bär, Bären | m, weak, wild
        lion | Löwe, Löwen | m, weak, wild
        elephant | Elefant, Elefanten | m, weak, wild
        wolf, wolves | Wolf, Wölfe | m, wild
    """,
    "food": """
        apple | Apfel, Äpfel | m, fruit
        pear | Birne, Birnen | f, fruit
        banana | Banane, Bananen | f, fruit
        cherry | Kirsche, Kirschen | f, fruit
        tomato, tomatoes | Tomate, Tomaten | f, fruit
        egg | Ei, Eier | n, dish
        potato, potatoes | Kartoffel, Kartoffeln | f, dish
        sausage | Wurst, Würste | f, solid
        biscuit | Keks, Kekse | m, baked
        cake | Kuchen | m, baked, solid
        apple cake | Apfelkuchen | m, baked, solid
        chocolate cake | Schokoladenkuchen | m, baked, solid
        soup | Suppe, Suppen | f, dish
        tomato soup | Tomatensuppe, Tomatensuppen | f, dish
        vegetable soup | Gemüsesuppe, Gemüsesuppen | f, dish
        potato salad | Kartoffelsalat, Kartoffelsalate | m
        bread | Brot | n, mass, baked, solid
        cheese | Käse | m, mass, solid
        meat | Fleisch | n, mass, solid, dish
        rice | Reis | m, mass, dish
        honey | Honig | m, mass
        chocolate | Schokolade | f, mass
        ice cream | Eis | n, mass
    """,
    "drink": """
        water | Wasser | n, mass
        milk | Milch | f, mass
        tea | Tee | m, mass
        coffee | Kaffee | m, mass
        beer | Bier | n, mass
        wine | Wein | m, mass
        lemonade | Limonade | f, mass
        apple juice | Apfelsaft | m, mass
        orange juice | Orangensaft | m, mass
    """,
    "text": """
        book | Buch, Bücher | n, goods, portable
        letter | Brief, Briefe | m, portable
        newspaper | Zeitung, Zeitungen | f, goods, portable
        poem | Gedicht, Gedichte | n
        story | Geschichte, Geschichten | f, tale
        fairy tale | Märchen | n, tale
        novel | Roman, Romane | m, goods
        message | Nachricht, Nachrichten | f
        love letter | Liebesbrief, Liebesbriefe | m
        history book | Geschichtsbuch, Geschichtsbücher | n, goods, portable
        travel guide | Reiseführer | m, goods, portable
    """,
    "vehicle goods": """
        car | Auto, Autos | n
        bicycle | Fahrrad, Fahrräder | n
        boat | Boot, Boote | n
        tractor | Traktor, Traktoren | m
        sports car | Sportwagen | m
    """,
    "transport": """
        bus | Bus, Busse | m, gen=Busses
        train | Zug, Züge | m
        taxi | Taxi, Taxis | n
        school bus | Schulbus, Schulbusse | m, gen=Schulbusses
        ship | Schiff, Schiffe | n
    """,
    "furniture goods": """
        table | Tisch, Tische | m
        chair | Stuhl, Stühle | m
        bed | Bett, Betten | n
        sofa | Sofa, Sofas | n
        cupboard | Schrank, Schränke | m
        shelf, shelves | Regal, Regale | n
        kitchen table | Küchentisch, Küchentische | m
        garden chair | Gartenstuhl, Gartenstühle | m
    """,
    "device goods": """
        lamp | Lampe, Lampen | f
        computer | Computer | m
        radio | Radio, Radios | n
        camera | Kamera, Kameras | f, portable
        alarm clock | Wecker | m, portable
        washing machine | Waschmaschine, Waschmaschinen | f
    """,
    "thing portable goods": """
        cup | Tasse, Tassen | f, crockery
        glass | Glas, Gläser | n, crockery
        plate | Teller | m, crockery
        knife, knives | Messer | n, crockery
        spoon | Löffel | m, crockery
        bottle | Flasche, Flaschen | f, crockery
        bag | Tasche, Taschen | f
        suitcase | Koffer | m
        key | Schlüssel | m
        umbrella | Regenschirm, Regenschirme | m
        box | Kiste, Kisten | f
        ball | Ball, Bälle | m
        candle | Kerze, Kerzen | f
        flower | Blume, Blumen | f
        picture | Bild, Bilder | n, sight
        gift | Geschenk, Geschenke | n
        ring | Ring, Ringe | m
        coffee cup | Kaffeetasse, Kaffeetassen | f, crockery
        wine glass | Weinglas, Weingläser | n, crockery
        bread knife, knives | Brotmesser | n, crockery
        house key | Hausschlüssel | m
        city map | Stadtplan, Stadtpläne | m
    """,
    "clothes goods": """
        hat | Hut, Hüte | m
        coat | Mantel, Mäntel | m
        jacket | Jacke, Jacken | f
        shirt | Hemd, Hemden | n
        dress | Kleid, Kleider | n
        skirt | Rock, Röcke | m
        shoe | Schuh, Schuhe | m
        sweater | Pullover | m
        winter coat | Wintermantel, Wintermäntel | m
        rain jacket | Regenjacke, Regenjacken | f
        summer dress | Sommerkleid, Sommerkleider | n
    """,
    "opening": """
        door | Tür, Türen | f
        window | Fenster | n
        gate | Tor, Tore | n
        front door | Haustür, Haustüren | f
        garden gate | Gartentor, Gartentore | n
    """,
    "idea": """
        question | Frage, Fragen | f
        answer | Antwort, Antworten | f
        problem | Problem, Probleme | n, task
        puzzle | Rätsel | n, task
        plan | Plan, Pläne | m
        rule | Regel, Regeln | f
    """,
    "show": """
        song | Lied, Lieder | n, music
        film | Film, Filme | m, event
        concert | Konzert, Konzerte | n, event
        game | Spiel, Spiele | n, event
        birthday party | Geburtstagsfeier, Geburtstagsfeiern | f, event
        summer holiday | Sommerurlaub, Sommerurlaube | m, event
    """,
    "place room": """
        kitchen | Küche, Küchen | f, in=in/in
        living room | Wohnzimmer | n, in=in/in
        dining room | Esszimmer | n, in=in/in
        bedroom | Schlafzimmer | n, in=in/in
        bathroom | Badezimmer | n, in=in/in
        office | Büro, Büros | n, in=in/in
    """,
    "place building": """
        cinema | Kino, Kinos | n, in=in/in
        theatre | Theater | n, in=in/in
        museum | Museum, Museen | n, in=in/in
        restaurant | Restaurant, Restaurants | n, in=in/in
        hotel | Hotel, Hotels | n, in=in/in
        hospital | Krankenhaus, Krankenhäuser | n, in=in/in
        library | Bibliothek, Bibliotheken | f, in=in/in
        church | Kirche, Kirchen | f, in=in/in
        university | Universität, Universitäten | f, at=an/zu
        train station | Bahnhof, Bahnhöfe | m, at=an/zu
        airport | Flughafen, Flughäfen | m, at=an/zu
        swimming pool | Schwimmbad, Schwimmbäder | n, in=in/in, wet
        castle | Schloss, Schlösser | n, in=in/zu
    """,
    "place open": """
        garden | Garten, Gärten | m, in=in/in
        park | Park, Parks | m, in=in/in
        forest | Wald, Wälder | m, in=in/in
        village | Dorf, Dörfer | n, in=in/in, area
        city | Stadt, Städte | f, in=in/in, area
        market | Markt, Märkte | m, at=auf/auf
        beach | Strand, Strände | m, at=an/an
        bus stop | Bushaltestelle, Bushaltestellen | f, at=an/zu
        street | Straße, Straßen | f, on=auf/auf, spot
        mountain | Berg, Berge | m, on=auf/auf, spot
    """,
    "place water": """
        lake | See, Seen | m, in=in/zu, wet
        river | Fluss, Flüsse | m, in=in/zu, wet
    """,
    "language": """
        German | Deutsch | n, mass
        English | Englisch | n, mass
        French | Französisch | n, mass
        Italian | Italienisch | n, mass
        Spanish | Spanisch | n, mass
    """,
    "instrument": """
        guitar | Gitarre, Gitarren | f
        piano | Klavier, Klaviere | n
        violin | Geige, Geigen | f
    """,
    "weather": """
        weather | Wetter | n, mass
    """,
}


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages, and the tags that say what may be said of it."""

    english: tuple[str, ...]
    english_plural: tuple[str, ...]
    german: dict[str, dict[str, str]]  # number "s" or "p", then case
    gender: str
    tags: frozenset[str]
    feminine: str | None  # the German word for a woman
    place: tuple[str, str, str] | None  # English "where", German "where" and German "whither" prepositions
    is_compound: bool  # two English words, one German word


def _parse(row: str, common_tags: str) -> Noun:
    english_forms, german_forms, features = ([part.strip() for part in cell.split(",")] for cell in row.split("|"))
    *modifier, head = english_forms[0].split()
    plural_head = english_forms[1] if len(english_forms) > 1 else english.plural(head)
    gender, *flags = features
    values = dict(flag.split("=") for flag in flags if "=" in flag)
    tags = frozenset(common_tags.split()) | {flag for flag in flags if "=" not in flag}
    singular, plural = german_forms[0], german_forms[-1]
    oblique = plural if "weak" in tags else singular
    genitive = values.pop("gen", oblique if "weak" in tags else german.genitive_singular(singular, gender))
    feminine = values.pop("f", None)
    place = next(((preposition, *pair.split("/")) for preposition, pair in values.items()), None)
    return Noun(
        english=(*modifier, head),
        english_plural=(*modifier, plural_head),
        german={
            "s": {"nom": singular, "acc": oblique, "dat": oblique, "gen": genitive},
            "p": {"nom": plural, "acc": plural, "dat": german.dative_plural(plural), "gen": plural},
        },
        gender=gender,
        tags=tags,
        feminine=feminine,
        place=place,  # type: ignore[arg-type]
        is_compound=bool(modifier),
    )


NOUNS = tuple(
    _parse(row, common_tags) for common_tags, table in _TABLES.items() for row in table.splitlines() if row.strip()
)


@cache
def nouns_tagged(*tags: str) -> tuple[Noun, ...]:
    """The nouns with at least one of the tags, in the order of the lexicon."""
    return tuple(noun for noun in NOUNS if not noun.tags.isdisjoint(tags))
