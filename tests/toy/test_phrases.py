"""How noun phrases are linked: every word to its own translation, in any sentence of the embedded corpus."""

import re
from collections import Counter, defaultdict

from hypothesis import given, settings

from rela.toy.nouns import NOUNS
from tests.toy.linked import Linked, sentences

few = settings(max_examples=100, deadline=None)
many = settings(max_examples=300, deadline=None)

# Small words and all that each may be linked to; an occurrence is linked to exactly one German word.
SMALL_WORDS = {
    "I": "ich",
    "we": "wir",
    "he": "er",
    "she": "sie",
    "they": "sie",
    "you": "du|dich|dir",
    "me": "mich|mir",
    "us": "uns",
    "him": "ihn|ihm",
    "them": "sie|ihnen",
    "it": "es",
    "her": "sie|ihr(e[nmrs]?)?",
    "my": "mein(e[nmrs]?)?",
    "your": "dein(e[nmrs]?)?",
    "his": "sein(e[nmrs]?)?",
    "our": "unser(e[nmrs]?)?",
    "their": "ihr(e[nmrs]?)?",
    "these": "diesen?",
    "many": "vielen?",
    "every": "jede[nmrs]?",
    "two": "zwei",
    "and": "und",
    "but": "aber",
    "because": "weil",
    "whether": "ob",
    "if": "wenn",
    "that": "dass",
    "than": "als",
    "as": "so|wie",
    "never": "nie",
    "let": "lass",
    "why": "warum",
    "when": "wann",
    "where": "wo|wohin",
    "what": "was",
}
CONTRACTED = {"im", "am", "ins", "zum", "zur", "vom", "beim"}
PREPOSITIONS = {"in", "at", "to", "by", "from", "of", "on", "with", "for", "next", "until", "near", "about"}


@many
@given(said=sentences())
def test_small_words_are_linked_to_their_translation(said: Linked):
    for position, word in enumerate(said.english):
        if word in SMALL_WORDS:
            (german,) = said.to_german(position)
            assert re.fullmatch(SMALL_WORDS[word], german), f"{word} is linked to {german}"


@few
@given(said=sentences())
def test_a_contracted_article_is_a_preposition_and_perhaps_the(said: Linked):
    """in the garden ↔ im Garten, in winter ↔ im Winter."""
    for position, word in enumerate(said.german):
        if word in CONTRACTED:
            linked = {*said.to_english(position)}
            assert linked & PREPOSITIONS, f"{word} is linked to {linked}"
            assert linked <= PREPOSITIONS | {"the"}, f"{word} is linked to {linked}"


@few
@given(said=sentences("position", "intransitive", "negation"))
def test_in_front_of_is_vor(said: Linked):
    for position in range(len(said.english) - 2):
        if said.english[position : position + 3] == ["in", "front", "of"]:
            assert [said.to_german(position + k) for k in range(3)] == [["vor"]] * 3


@few
@given(said=sentences("possession"))
def test_the_genitive_is_in_the_name_or_the_determiner(said: Linked):
    """Anna 's dog ↔ Annas Hund; our aunt 's dog ↔ der Hund unserer Tante; belongs to ↔ gehört."""
    if "'s" in said.english:
        position = said.english.index("'s")
        (german,) = said.to_german(position)
        owner = [word for i in range(position) for word in said.to_german(i)]
        assert german in owner
    else:
        position = said.english.index("to")
        assert said.to_german(position) == said.to_german(position - 1)
        assert said.to_german(position)[0].startswith("gehör")


@few
@given(said=sentences("comparison"))
def test_a_comparative_is_one_german_word(said: Linked):
    if "more" in said.english:
        position = said.english.index("more")
        assert said.to_german(position) == said.to_german(position + 1)
        assert said.to_german(position)[0].endswith("er")
    if "as" in said.english:
        first = said.english.index("as")
        second = said.english.index("as", first + 1)
        assert (said.to_german(first), said.to_german(second)) == (["so"], ["wie"])


@few
@given(said=sentences("relative clause"))
def test_a_relative_pronoun_follows_its_comma(said: Linked):
    position = next(i for i, word in enumerate(said.english) if word in ("who", "which"))
    (german,) = (j for i, j in said.sentence.links if i == position)
    assert said.german[german] in ("der", "die", "das", "den", "dem", "denen")
    assert said.german[german - 1] == ","


@few
@given(said=sentences("existence"))
def test_there_is_is_es_gibt(said: Linked):
    position = said.english.index("there")
    assert said.to_german(position) == ["es"]
    assert said.to_german(position + 1) == ["gibt"]


@few
@given(said=sentences("purpose", "suggestion"))
def test_fixed_openings(said: Linked):
    """in order to ↔ um … zu; let us ↔ lass uns."""
    if said.construction == "purpose":
        position = said.english.index("order")
        assert said.to_german(position - 1) == said.to_german(position) == ["um"]
    else:
        assert [said.to_german(i) for i in (0, 1)] == [["lass"], ["uns"]]


def test_both_words_of_a_compound_are_linked_to_the_german_word(pairs):
    compounds = {
        noun.english_plural if number == "p" else noun.english: noun
        for noun in NOUNS
        for number in "sp"
        if noun.is_compound
    }
    singles = {form for noun in NOUNS for cases in noun.german.values() for form in cases.values()}
    singles |= {noun.feminine for noun in NOUNS if noun.feminine}
    found = Counter()
    for pair in pairs:
        source, target = pair.source.split(), pair.target.split()
        by_source = defaultdict(set)
        for i, j in pair.links:
            by_source[i].add(j)
        for position in range(len(source) - 1):
            words = (source[position].lower() if position == 0 else source[position], source[position + 1])
            if words in compounds:
                assert len(by_source[position]) == 1
                assert by_source[position] == by_source[position + 1]
                assert target[min(by_source[position])] in singles
                found[words] += 1
    assert len(found) > 0.9 * len(compounds)


def test_nouns_are_linked_to_their_own_translation(pairs):
    """By a dictionary made from the lexicon: an English noun of one word is linked to a form of its German noun."""
    dictionary = defaultdict(set)
    for noun in NOUNS:
        if not noun.is_compound:
            for number, (form,) in (("s", noun.english), ("p", noun.english_plural)):
                dictionary[form] |= set(noun.german[number].values()) | {noun.feminine}
    plain = {
        word
        for word in dictionary
        if word in ("dog", "dogs", "book", "books", "boy", "boys", "mice", "children", "door")
    }
    checked = 0
    for pair in pairs:
        source, target = pair.source.split(), pair.target.split()
        for i, j in pair.links:
            if source[i] in plain and (i == 0 or source[i - 1] not in ("history", "front")):
                assert target[j] in dictionary[source[i]], pair
                checked += 1
    assert checked > 500
