"""The exported page is one well-formed file that holds its views, fetches nothing, and runs only its own script."""

import json
import re
from html.parser import HTMLParser

import pytest

from rela.explorer.export import content_hash, export_page, json_block, write_export

ATTACK = '</script><script>alert("x")</script> <!-- <b> & \u2028 🎉 שלום'
VOID = {"meta", "link", "input", "br"}


class Reader(HTMLParser):
    """Elements with their attributes and text; an end that fits no beginning is an error."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.open.append((tag, self.elements[-1]))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][1][2].append(data)

    def of(self, tag):
        return [(attributes, "".join(text)) for name, attributes, text in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(views):
    return export_page(
        views.start(), [views.view(name, f"The {ATTACK} .", f"Der {ATTACK} .") for name in ("rela", "soft")]
    )


def test_it_is_well_formed_and_fetches_nothing(page):
    reader = Reader(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not [element for element in reader.elements if {"src", "href", "srcset", "action"} & element[1].keys()]
    page = page.replace("http://www.w3.org/2000/svg", "")  # the name of a kind of elements, which nobody fetches
    assert not re.search(r"https?://|//cdn|@import|url\(", page)


def test_it_holds_the_views_as_data(page, views):
    saved, script = Reader(page).of("script")
    assert saved[0] == {"type": "application/json", "id": "saved"}
    data = json.loads(saved[1])
    wanted = [views.view(name, f"The {ATTACK} .", f"Der {ATTACK} .").to_dict() for name in ("rela", "soft")]
    assert data["views"] == json.loads(json.dumps(wanted))
    assert [model["name"] for model in data["start"]["models"]] == ["rela", "soft"]
    assert "alert(" not in script[1]
    assert not set("<>&\u2028") & set(saved[1])


def test_only_its_own_script_and_style_may_run(page):
    reader = Reader(page)
    (policy,) = [attributes["content"] for attributes, _ in reader.of("meta") if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'; ")
    (style,) = reader.of("style")
    for text, directive in ((reader.of("script")[1][1], "script-src"), (style[1], "style-src")):
        assert f"{directive} {content_hash(text)};" in policy


def test_models_that_are_not_shown_are_not_named(views):
    page = export_page(views.start(), [views.view("soft", "The dog .", "Der Hund .")])
    data = json.loads(Reader(page).of("script")[0][1])
    assert [model["name"] for model in data["start"]["models"]] == ["soft"]


def test_json_in_a_script_element_cannot_end_it():
    text = "</script><!--<script>&amp;\u2028\u2029\x00"
    assert not set("<>&\u2028\u2029") & set(json_block([text]))
    assert json.loads(json_block([text])) == [text]


def test_the_server_hands_out_the_same_file(client, views):
    answer = client.post("/api/export", json={"models": ["rela"], "source": "The dog .", "target": "Der Hund ."})
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.text == export_page(views.start(), [views.view("rela", "The dog .", "Der Hund .")])


def test_a_file_keeps_what_the_target_was_before(client, views):
    """Its null rate and log-probability, and what is shown first; own translations are asked for by an empty text."""
    asked = {"models": ["rela", "soft"], "source": "The dog .", "target": "Die Katze .", "address": "#layer=2"}
    answer = client.post("/api/export", json={**asked, "before": ""})
    data = json.loads(Reader(answer.text).of("script")[0][1])
    assert data["address"] == "#layer=2"
    for before, name in zip(data["before"], ("rela", "soft"), strict=True):
        own = views.view(name, "The dog .")
        assert before == {
            "model": name,
            "target": own.target,
            "forced": False,
            "log_prob": own.log_prob,
            "null_rate": own.null_rate,
        }
    assert [view["target"] for view in data["views"]] == ["Die Katze ."] * 2
    refused = client.post("/api/export", json={**asked, "before": 3})
    assert refused.status_code == 422
    assert "before" in refused.json()["error"]


def test_a_file_appears_whole_or_not_at_all(views, tmp_path):
    path = tmp_path / "look.html"
    view = views.view("rela", "The dog .", "Der Hund .")
    write_export(path, views.start(), [view])
    assert path.read_text(encoding="utf-8") == export_page(views.start(), [view])
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match=r"missing/look\.html'"):
        write_export(tmp_path / "missing" / "look.html", views.start(), [view])
