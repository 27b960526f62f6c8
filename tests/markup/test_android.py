"""String resources of Android: which documents are such, and what a backslash means in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.markup.android import escape_android, is_android
from rela.markup.documents import parse_document


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<resources><string name="a">x</string></resources>', True),
        ('<?xml version="1.0"?>\n<!-- c -->\n<resources>\n<plurals name="p"></plurals></resources>', True),
        ('<resources><string id="a">x</string></resources>', False),
        ('<doc><resources><string name="a">x</string></resources></doc>', False),
    ],
)
def test_a_document_is_one_of_android_by_its_root_and_its_strings(text: str, wanted: bool):
    assert is_android(text) is wanted


@given(st.lists(st.text(alphabet="aä'\"\\&<>u0", min_size=1), min_size=1).map(" ".join))
def test_text_that_was_escaped_is_read_as_it_was(text: str):
    document = parse_document(f'<resources><string name="a">{escape_android(text)}</string></resources>', "xml")
    assert [passage.text for passage in document.passages] == ([text] if any(map(str.isalpha, text)) else [])


@pytest.mark.parametrize(("raw", "text"), [(r"\u00e4hnlich", "ähnlich"), (r"a\nb", "a b"), (r"it\'s", "it's")])
def test_escapes_are_read_as_their_characters(raw: str, text: str):
    (passage,) = parse_document(f'<resources><string name="a">{raw}</string></resources>', "xml").passages
    assert passage.text == text
