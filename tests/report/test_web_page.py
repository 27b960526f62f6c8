"""Pages are well-formed whatever the text, and say it unchanged."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from rela.report import web_page

ANY_TEXT = st.text(max_size=30)


def parse(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))


@given(title=ANY_TEXT, text=ANY_TEXT, address=ANY_TEXT)
def test_any_text_leaves_a_page_well_formed(title: str, text: str, address: str):
    parts = [web_page.heading(text), web_page.paragraph(text), web_page.command(text), web_page.link(address, text)]
    tree = parse(web_page.page(title, [*parts, web_page.picture(address, text, address)]))
    assert not list(tree.iter("script"))
    assert {element.tag for element in tree.find("body")} <= {"h1", "h2", "p", "pre", "a", "figure"}


def test_markup_is_text():
    tree = parse(web_page.page("a", [web_page.paragraph("<script>alert('x')</script> & \0")]))
    assert tree.find("body/p").text == "<script>alert('x')</script> & �"


def test_a_table_has_a_column_for_every_key_and_numbers_to_the_right():
    rows = [{"model_name": "a", "rate": 0.123456}, {"model_name": "<b>", "rate": 2, "note": "x"}]
    tree = ElementTree.fromstring(web_page.table(rows, {"rate": "null rate"}, text=["note"]))
    assert [cell.text for cell in tree.iter("th")] == ["model name", "null rate", "note"]
    assert [[cell.text for cell in row] for row in tree.iter("tr")][1:] == [["a", "0.1235", None], ["<b>", "2", "x"]]
    assert [cell.get("class") for cell in tree.iter("th")] == [None, "number", "text"]


def test_abbreviations_have_their_capitals_in_titles():
    tree = ElementTree.fromstring(web_page.table([{"model": "a", "normal_aol": 0.5, "auroc_both": 1.0}]))
    assert [cell.text for cell in tree.iter("th")] == ["model", "normal AoL", "AUROC both"]
