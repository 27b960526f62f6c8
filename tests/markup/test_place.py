"""Marks in a translation: each once, none crossing, no word lost, around the words that theirs are linked to."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rela.markup.documents import html_document
from rela.markup.entities import escape
from rela.markup.passages import Passage
from rela.markup.place import place_marks

TAG = re.compile(r"<(/?)(\w+)[^>]*?(/?)>")


def passage(html: str) -> Passage:
    (found,) = html_document(html).passages
    return found


def placed(html: str, target: str, links: str) -> str:
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    return place_marks(passage(html), target, pairs, escape)


def test_a_tag_follows_its_words():
    assert placed("the <b>red</b> house", "das Haus rot", "0-0 1-2 2-1") == "das Haus <b>rot</b>"
    assert placed("<i>red</i> <b>house</b>", "Haus rot", "0-1 1-0") == "<b>Haus</b> <i>rot</i>"
    assert placed("a <b>very <i>red</i></b> house", "ein sehr rotes Haus", "0-0 1-1 2-2 3-3") == (
        "ein <b>sehr <i>rotes</i></b> Haus"
    )


def test_punctuation_stays_outside_where_it_was_outside():
    assert placed("Click <b>here</b>.", "Klicken Sie hier.", "0-0 1-2") == "Klicken Sie <b>hier</b>."
    assert placed("Click <b>here.</b>", "Klicken Sie hier.", "0-0 1-2") == "Klicken Sie <b>hier.</b>"
    assert placed('a ("<b>b</b>") c', "A („B“) C", "0-0 1-1 2-2") == "A („<b>B</b>“) C"


def test_a_tag_around_everything_stays_around_everything():
    assert placed("<b>two words</b>", "ganz andere Wörter hier", "") == "<b>ganz andere Wörter hier</b>"


def test_stray_links_do_not_stretch_a_tag():
    """Word 1 is linked to its own translation and to one far away, between which others' translations lie."""
    assert placed("a <b>b</b> c d e", "A B C D E", "0-0 1-1 2-2 3-3 1-4 4-4") == "A <b>B</b> C D E"


def test_tags_without_links_and_empty_ones_are_there():
    assert placed("a <b>b</b> c", "A C", "0-0 2-1") == "A <b></b>C"
    assert placed("a <b></b>c", "A C", "0-0 1-1") == "A <b></b>C"
    assert placed("a <b>b</b>", "", "") == "<b></b>"


def test_images_and_references_keep_their_place_and_spaces():
    assert placed("one <img src=x> two", "zwei eins", "0-1 1-0") == "<img src=x> zwei eins"
    assert placed("10&nbsp;km &mdash; far", "10 km weit", "0-0 1-1 2-2") == "10&nbsp;km &mdash; weit"
    assert placed("see <code>x&lt;y</code>.", "siehe.", "0-0") == "siehe <code>x&lt;y</code>."


def test_a_space_before_punctuation_stays_if_it_was_there():
    assert placed("a dog <img> .", "ein Hund .", "0-0 1-1 2-2") == "ein Hund <img> ."
    assert placed("a dog <img>.", "ein Hund.", "0-0 1-1") == "ein Hund <img>."


def test_a_comma_that_the_target_alone_has_stays_outside():
    assert placed("Click <b>here</b> to go", "Hier, um zu gehen", "1-0 2-1 3-3") == "<b>Hier</b>, um zu gehen"


def test_a_tag_inside_a_word_stays_inside_it_where_the_word_is_copied():
    assert placed("H<sub>2</sub>O, and", "und H2O,", "0-1 1-0") == "und H<sub>2</sub>O,"
    assert placed("CO<sub>2</sub> falls", "CO2 sinkt", "0-0 1-1") == "CO<sub>2</sub> sinkt"
    assert placed("the 5<sup>th</sup> dog", "der fünfte Hund", "0-0 1-1 2-2") == "der <sup>fünfte</sup> Hund"


def test_a_tag_around_an_image_is_set_apart_as_it_was():
    link = "<a><img></a>"
    assert placed(f"see {link} or this", "siehe dies", "0-0 2-1") == f"siehe {link} dies"
    assert placed(f"see {link} or this", "oder dies", "1-0 2-1") == f"{link} oder dies"
    assert placed(f"see {link}.", "siehe.", "0-0") == f"siehe {link}."
    assert placed(f"<i>see</i> {link}now", "siehe nun", "0-0 1-1") == f"<i>siehe</i> {link}nun"


def test_what_stands_alone_between_quotation_marks_stays_there():
    assert placed('a "<img>" b', 'A b "" B', "0-0 2-3") == 'A b "<img>" B'
    assert placed("a (<img>) [<i></i>] b", "A () [] B", "0-0 3-3") == "A (<img>) [<i></i>] B"


def test_text_is_escaped_and_tags_are_not():
    assert placed('a <b title="x&lt;y">b</b>', "A<&B", "1-0") == '<b title="x&lt;y">A&lt;&amp;B</b>'


words = st.lists(st.sampled_from(["a", "Haus", "b.", "(c)", "d,", "&lt;", "é"]), min_size=1, max_size=6)
trees = st.recursive(
    words.map(" ".join),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["b", "i", "span", "a"]), inner, st.booleans()).map(
            lambda item: f"<{item[0]}>{item[1]}</{item[0]}>" + ("<img/> " if item[2] else " x ")
        ),
        min_size=1,
        max_size=3,
    ).map("".join),
    max_leaves=8,
)


@given(trees, st.lists(st.sampled_from(["x", "y!", "„z“", "w", "<", "&"]), max_size=9), st.data())
def test_every_tag_once_nothing_crosses_no_word_lost(html, target_words, data):
    """Whatever the links are."""
    for part in html_document(html).passages:
        target = " ".join(target_words)
        source = len(part.text.split())
        link = st.tuples(st.integers(0, max(source - 1, 0)), st.integers(0, max(len(target_words) - 1, 0)))
        links = data.draw(st.lists(link, max_size=12))
        written = place_marks(part, target, links, escape)
        assert sorted(TAG.findall(written)) == sorted(TAG.findall(html))
        waiting = []
        for closes, name, empty in TAG.findall(written):
            if closes:
                assert waiting.pop() == name
            elif not empty:
                waiting.append(name)
        assert not waiting
        assert TAG.sub("", written).replace(" ", "") == escape(target).replace(" ", "")
