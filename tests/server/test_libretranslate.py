"""LibreTranslate's clients are answered as they expect, whichever way they ask."""

import json
import sys
import urllib.parse
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.markup.documents import translate_document
from rela.markup.translate import PassageTranslator
from rela.server import detection
from rela.server.texts import Layout
from tests.web.serving import refused

ASKED = {"q": "The dog sleeps .", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def best(translators):
    """The best translation of a line."""
    return lambda line: translators["en-de"].translate([line])[0]


def test_json_forms_and_queries_say_the_same(client, best):
    expected = {"translatedText": best(ASKED["q"])}
    for answer in (
        client.post("/translate", json=ASKED),
        client.post("/translate", json=ASKED | {"format": "text", "api_key": "", "alternatives": 0, "unknown": 1}),
        client.post("/translate", json=ASKED | {"format": None, "api_key": None}),
        client.post("/translate", data=ASKED | {"format": "", "api_key": ""}),
        client.post("/translate", data=ASKED),
        client.post("/translate", files={name: (None, value) for name, value in ASKED.items()}),
        client.post("/translate", params=ASKED),
        client.post("/translate/", json=ASKED, follow_redirects=True),
    ):
        assert answer.status_code == 200, answer.text
        assert answer.json() == expected


def test_a_client_of_the_standard_library_works(client, best):
    """As small clients do it: a form, urllib, and the keys of the answer."""
    data = urllib.parse.urlencode({**ASKED, "q": "Käse & Brot +1 %"}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{client.base_url}/translate", data, timeout=30) as answer:
        assert json.load(answer)["translatedText"] == best("Käse & Brot +1 %")
    with opener.open(f"{client.base_url}/languages", timeout=30) as answer:
        codes = [language["code"] for language in json.load(answer)]
    assert codes == ["en", "de"]


def test_html_keeps_its_tags(client):
    page = "<p>The <b>dog</b> sleeps . A {name} &amp; cat .</p><pre>as it is</pre>"
    found = client.post("/translate", json={**ASKED, "q": [page, "a <i>dog</i>"], "format": "html"}).json()
    first, second = found["translatedText"]
    for kept in ("<p>", "<b>", "</b>", "{name}", "</p><pre>as it is</pre>"):
        assert first.count(kept) == 1
    assert second.count("<i>") == second.count("</i>") == 1
    assert "<p>The" not in first
    one = client.post("/translate", json={**ASKED, "q": page, "format": "html", "alternatives": 3}).json()
    assert one == {"translatedText": first, "alternatives": []}
    long = {**ASKED, "q": f"<p>{'dog ' * 400}</p>", "format": "html"}
    assert "the model takes at most" in refused(client.post("/translate", json=long), 400)


def test_what_is_no_language_is_copied_in_plain_text_too(client):
    text = "A dog {name} 🙂 <b> .\n\n2024\nhttps://a.b/c?d=1 it sleeps ."
    answer = client.post("/translate", json={**ASKED, "q": [text, "42 !"]}).json()["translatedText"]
    for kept in ("{name}", "🙂", "<", ">", "\n\n2024\n", "https://a.b/c?d=1"):
        assert answer[0].count(kept) == 1
    assert answer[1] == "42 !"
    assert client.post("/translate", json={**ASKED, "q": "12:30"}).json() == {"translatedText": "12:30"}


def test_several_texts_come_back_as_several(client, best):
    texts = ["The dog .", "", "The cat sleeps ."]
    answer = client.post("/translate", json={**ASKED, "q": texts}).json()
    assert answer == {"translatedText": [best(text) for text in texts]}


def test_lines_are_translated_one_by_one_and_kept(client, best):
    lines = ["The dog .", "", "  ", "The cat ."]
    answer = client.post("/translate", data={**ASKED, "q": "\n".join(lines)}).json()
    assert answer["translatedText"] == "\n".join(best(line) or line for line in lines)


def test_sentences_of_a_line_are_translated_one_by_one(client, best):
    answer = client.post("/translate", json={**ASKED, "q": "  The dog sleeps.  The cat sings!\n\nA dog. \n"}).json()
    one, two, three = (best(sentence) for sentence in ("The dog sleeps.", "The cat sings!", "A dog."))
    assert answer["translatedText"] == f"  {one}  {two}\n\n{three} \n"


@given(st.text(alphabet="aB. \n!\t,", max_size=60))
def test_a_layout_keeps_what_stands_between_sentences(text):
    layout = Layout.of(text)
    assert layout.fill(layout.sentences) == text
    assert not any(map(str.isalpha, "".join(layout.gaps)))
    assert all(any(map(str.isalpha, sentence)) for sentence in layout.sentences)
    assert not any("\n" in sentence for sentence in layout.sentences)


def test_html_is_translated_as_the_command_does_it(client, translators):
    page = '<p class="green">The <b>dog</b> sleeps. A cat &amp; a dog.</p><script>var dog = 1;</script>\n<p></p>'
    expected = translate_document(page, "html", PassageTranslator(translators["en-de"]))
    assert client.post("/translate", json={**ASKED, "q": page, "format": "html"}).json() == {"translatedText": expected}
    assert '<p class="green">' in expected
    pages = client.post("/translate", json={**ASKED, "q": [page, ""], "format": "html"}).json()
    assert pages == {"translatedText": [expected, ""]}
    form = client.post("/translate", data={**ASKED, "q": page, "format": "html"}).json()
    assert form == {"translatedText": expected}


def test_alternatives_are_the_next_best(client, translators):
    found = translators["en-de"].translate_nbest([ASKED["q"]], nbest=2)[0]
    answer = client.post("/translate", json={**ASKED, "alternatives": 1}).json()
    assert answer == {"translatedText": found[0].text, "alternatives": [found[1].text]}
    wider = client.post("/translate", data={**ASKED, "alternatives": "3"}).json()
    found = translators["en-de"].translate_nbest([ASKED["q"]], nbest=4, beam=4)[0]
    assert wider == {"translatedText": found[0].text, "alternatives": [other.text for other in found[1:]]}
    several = client.post("/translate", json={**ASKED, "q": [ASKED["q"], ""], "alternatives": 1}).json()
    assert several == {"translatedText": [answer["translatedText"], ""], "alternatives": [answer["alternatives"], []]}


def test_the_languages_are_those_of_the_models(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert (settings["keyRequired"], settings["charLimit"]) == (False, 100_000)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": "auto", "target": "fr"}, "there is no model for target 'fr'"),
        ({"source": "fr"}, "there is no model for source 'fr'"),
        ({"target": "en"}, "there is no model"),
        ({"target": None}, "target is missing"),
        ({"q": None}, "q is missing"),
        ({"q": []}, "q is missing"),
        ({"q": [1]}, "q is missing"),
        ({"q": {"a": "b"}}, "q is missing"),
        ({"q": "x" * 100_001}, "100,001 characters"),
        ({"q": "x\n" * 300}, "300 sentences"),
        ({"q": "<p>x</p>" * 300, "format": "html"}, "300 sentences"),
        ({"q": f"<p>{'dog ' * 200}</p>", "format": "html"}, "sentence 1 has"),
        ({"format": 1}, "format is missing, or no text"),
        ({"q": "dog " * 200}, "subwords"),
        ({"format": "docx"}, "format is 'docx'"),
        ({"alternatives": 8}, "from 0 to 7"),
        ({"alternatives": -1}, "from 0 to 7"),
        ({"alternatives": "many"}, "from 0 to 7"),
        ({"alternatives": 1e9}, "from 0 to 7"),
        ({"alternatives": True}, "from 0 to 7"),
    ],
)
def test_what_is_refused_says_why_with_status_400(client, change, says):
    assert says in refused(client.post("/translate", json=ASKED | change), 400)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b'{"q": "\xff"}'),
        ("application/json", b"[" * 100_000),
        ("application/json", b"[]"),
        ("application/json", b'{"q": "\\ud800", "source": "en", "target": "de"}'),
        ("application/x-www-form-urlencoded", b"q=\xff&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"q=%ff&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"&".join([b"q=x"] * 200)),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--b--'),
        ("multipart/form-data", b"--b--"),
        ("multipart/form-data; boundary=", b""),
        ("text/plain", b"q=x"),
        ("é", b"q=x"),
    ],
)
def test_broken_requests_are_refused(client, kind, body):
    refused(client.post("/translate", content=body, headers={"content-type": kind.encode("latin-1")}), 400)


@pytest.fixture
def detector():
    pytest.importorskip("py3langid")


@pytest.mark.usefixtures("detector")
def test_an_automatic_source_is_the_language_of_each_text(client, translators):
    english, german = "The dogs sleep in the house .", "Die Hunde schlafen in dem Haus ."
    plain = client.post("/translate", json={**ASKED, "q": english}).json()
    answer = client.post("/translate", json={**ASKED, "q": english, "source": "auto"}).json()
    assert answer.pop("detectedLanguage")["language"] == "en"
    assert answer == plain
    back = client.post("/translate", data={"q": german, "source": "auto", "target": "en"}).json()
    assert back["translatedText"] == translators["de-en"].translate([german])[0]
    assert back["detectedLanguage"]["language"] == "de"
    # What is in the target language already stays as it is, as LibreTranslate does it.
    mixed = client.post("/translate", json={**ASKED, "q": [german, english, german], "source": "auto"}).json()
    assert mixed["translatedText"] == [german, plain["translatedText"], german]
    assert [found["language"] for found in mixed["detectedLanguage"]] == ["de", "en", "de"]


@pytest.mark.usefixtures("detector")
def test_the_language_of_html_is_that_of_its_words(client):
    page = f'<p class="the house of the dogs" title="what is this">{"Die Hunde schlafen . " * 2}</p>'
    asked = {"q": page, "source": "auto", "target": "en", "format": "html"}
    answer = client.post("/translate", json=asked).json()
    assert answer.pop("detectedLanguage")["language"] == "de"
    assert answer == client.post("/translate", json={**asked, "source": "de"}).json()


@pytest.mark.usefixtures("detector")
def test_languages_are_detected_whichever_way_is_asked(client):
    text = "Wo ist der Bahnhof ?"
    answers = [
        client.post("/detect", json={"q": text}),
        client.post("/detect", data={"q": text}),
        client.post("/detect", params={"q": text}),
        client.post("/detect", json={"q": [text]}),
    ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert [found["language"] for found in answer.json()] == ["de", "en"]
        assert sum(found["confidence"] for found in answer.json()) == pytest.approx(100, abs=0.1)
    assert "q is missing" in refused(client.post("/detect", json={}), 400)
    assert "100,001 characters" in refused(client.post("/detect", json={"q": "x" * 100_001}), 400)


def test_without_the_detector_one_source_is_enough(client, monkeypatch):
    detection.load_identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    answer = client.post("/translate", json={**ASKED, "source": "auto"}).json()
    assert answer.pop("detectedLanguage") == {"confidence": 100.0, "language": "en"}
    assert answer == client.post("/translate", json=ASKED).json()
    says = refused(client.post("/detect", json={"q": "Hallo"}), 400)
    assert says == "detecting a language needs py3langid: pip install 'rela-attention[serve]'"
