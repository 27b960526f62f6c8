"""What counts as a placeholder, and what is made of one."""

from __future__ import annotations

import time

import pytest

from rela.markup.documents import parse_document
from rela.markup.passages import Passage
from rela.markup.place import place_marks
from rela.markup.placeholders import all_copied, find_placeholders, hide_placeholders


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hello {name}, {0} and {{ user.name }} in ${HOME}", ["{name}", "{0}", "{{ user.name }}", "${HOME}"]),
        ("%s of %d, %1$s %-5.2f %(who)s %ld %% done", ["%s", "%d", "%1$s", "%-5.2f", "%(who)s", "%ld", "%%"]),
        ("see https://a.b/c?d=e&f=g. Or (www.x.org/y), now", ["https://a.b/c?d=e&f=g", "www.x.org/y"]),
        ("write to a.b+c@x-y.org!", ["a.b+c@x-y.org"]),
        ("😀 👍🏽 👨‍👩‍👧 ❤️ 🇩🇪 1️⃣", ["😀", "👍🏽", "👨‍👩‍👧", "❤️", "🇩🇪", "1️⃣"]),
        ("100% sure, 5 % of {} (a) [b] a@b x & y", ["{}"]),
        ("5 < 6, a * b = {c d} © → #now @me", ["<", "*", "=", "{", "}", "©", "→", "#now", "@me"]),
        ('<a href="x y">one</a> 5 < 6', ['<a href="x y">', "</a>", "<"]),
        ("the file_name of R&D in C", ["file_name"]),
        (r"a_b.txt, (c_d.e). In C:\a b:\x\y.txt, not 12:a:b", ["a_b.txt", "c_d.e", r"C:\a", r"b:\x\y.txt"]),
        (":smile: or :+1 : at 10:30:15", [":smile:"]),
        ("You have {n, plural, one {# dog} other {{n} dogs}}!", ["{n, plural, one {# dog} other {{n} dogs}}"]),
    ],
)
def test_what_is_found(text, wanted):
    assert find_placeholders(text) == wanted


def test_hidden_placeholders_come_back_by_their_neighbours():
    passage = hide_placeholders(Passage("Delete %s files, {name}!"))
    assert passage.text == "Delete files, !"
    assert place_marks(passage, "Dateien löschen, !", [(0, 1), (1, 0)]) == "%s Dateien löschen, {name}!"


def test_a_placeholder_beside_a_tag_is_set_apart_as_it_was():
    (found,) = parse_document("to <b>{x}</b> or {y}<i>this</i>", "html").passages
    passage = hide_placeholders(found)
    assert place_marks(passage, "zu dies", [(0, 0), (2, 1)]) == "zu <b>{x}</b> {y}<i>dies</i>"


def test_no_space_is_added_around_a_placeholder_between_sentences():
    passage = hide_placeholders(Passage("A dog. {x} A cat. 😀 😀"))
    assert passage.text == "A dog. A cat. "
    links = [(i, i) for i in range(4)]
    assert place_marks(passage, "Ein Hund. Eine Katze. ", links) == "Ein Hund. {x} Eine Katze. 😀 😀"


def test_copied_means_each_as_often():
    assert all_copied("a {x} {x} %s", "%s b {x}{x}")
    assert not all_copied("a {x}", "a {x} {x}")
    assert not all_copied("a {x}", "a")
    assert not all_copied("a", "a {x}")


@pytest.mark.parametrize("text", ["x" * 200_000, "%" + "0" * 200_000, "%(n)" + "0" * 200_000, "{" * 200_000])
def test_a_word_without_end_takes_no_longer_than_its_length(text):
    began = time.process_time()
    find_placeholders(text)
    assert time.process_time() - began < 5
