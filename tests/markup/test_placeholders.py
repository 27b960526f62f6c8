"""What counts as a placeholder, and what is made of one."""

from __future__ import annotations

import pytest

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
        ("You have {n, plural, one {# dog} other {{n} dogs}}!", ["{n, plural, one {# dog} other {{n} dogs}}"]),
    ],
)
def test_what_is_found(text, wanted):
    assert find_placeholders(text) == wanted


def test_hidden_placeholders_come_back_by_their_neighbours():
    passage = hide_placeholders(Passage("Delete %s files, {name}!"))
    assert passage.text == "Delete  files, !"
    assert place_marks(passage, "Dateien löschen, !", [(0, 1), (1, 0)]) == "%s Dateien löschen, {name}!"


def test_copied_means_each_as_often():
    assert all_copied("a {x} {x} %s", "%s b {x}{x}")
    assert not all_copied("a {x}", "a {x} {x}")
    assert not all_copied("a {x}", "a")
    assert not all_copied("a", "a {x}")
