"""Words are linked where they share a mark, commas are settled, and a line begins with a capital letter."""

from hypothesis import given
from hypothesis import strategies as st

from rela.toy.words import COMMA, Word, capitalise, find_links, settle_commas, to_text

WORDS = st.lists(
    st.builds(
        Word, st.sampled_from(["a", "b", ","]), st.lists(st.sampled_from("xyz"), unique=True, max_size=2).map(tuple)
    ),
    max_size=6,
)


def test_words_are_linked_where_they_share_a_mark():
    english = [Word("a", ("x",)), Word("b", ("y", "z")), Word("c")]
    german = [Word("B", ("z",)), Word("A", ("x", "y")), Word("C", ("w",))]
    assert find_links(english, german) == ((0, 1), (1, 0), (1, 1))


@given(english=WORDS, german=WORDS)
def test_links_are_all_pairs_with_a_common_mark(english, german):
    links = find_links(english, german)
    wanted = {(i, j) for i, e in enumerate(english) for j, g in enumerate(german) if {*e.marks} & {*g.marks}}
    assert list(links) == sorted(wanted)
    assert sorted((j, i) for i, j in find_links(german, english)) == list(links)


def test_a_closing_comma_gives_way_to_what_follows():
    words = [Word("a"), COMMA, Word("b"), COMMA, COMMA, Word("c"), COMMA, Word(".")]
    assert [word.text for word in settle_commas(words)] == ["a", ",", "b", ",", "c", "."]


@given(words=WORDS)
def test_settled_commas_stay_settled_and_nothing_else_goes(words):
    settled = settle_commas(words)
    assert settle_commas(settled) == settled
    assert [word for word in settled if word.text != ","] == [word for word in words if word.text != ","]


def test_a_line_begins_with_a_capital_letter_and_keeps_the_others():
    assert to_text([Word("über"), Word("den"), Word("See")]) == "Über den See"
    assert (capitalise(""), capitalise("iPod")) == ("", "IPod")
