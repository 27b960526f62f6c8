"""Whatever is sent, the server answers with a view or with one line of JSON, and goes on serving."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rela.explorer.views import MAX_CHARACTERS, MAX_SUBWORDS
from tests.tiny_models import tiny_translator, toy_pairs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

from tests.web.serving import refused  # noqa: E402

JSON = {"content-type": "application/json"}
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "<!-- --> ]]> &lt; &#60; ${1} {{7*7}} %3Cb%3E",
    "🎉🏳️‍🌈 👩‍👩‍👧‍👦",
    "שלום العالم \u202eabc\u202c",
    "NUL \x00 and \x1b[31m and \x7f",
    "</s> <s> <pad> <unk> ▁▁ ▁",
    "e" + "\u0301" * 60,
    "\ufeff\u200b\u2028\u2029\ufffe\uffff x",
]


@pytest.fixture(autouse=True)
def _still_up(client):
    yield
    assert client.get("/api/start").status_code == 200


def test_start_names_models_examples_and_limits(client, views):
    start = client.get("/api/start").json()
    assert [model["name"] for model in start["models"]] == ["rela", "soft"]
    assert start["models"][1]["kinds"] == dict.fromkeys(("encoder", "decoder", "cross"), "softmax")
    assert start["examples"][0] == {"source": views.examples[0].source, "target": views.examples[0].target}
    assert start["limits"] == {"characters": MAX_CHARACTERS, "subwords": MAX_SUBWORDS}


def test_a_view_is_the_payload(client, views):
    pair = {"source": "The dog sleeps .", "target": "Der Hund schläft ."}
    answer = client.post("/api/view", json={"model": "soft", **pair})
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(views.view("soft", **pair).to_dict()))


@pytest.mark.parametrize("target", [None, "", "  \n "])
def test_without_a_target_it_translates(client, target):
    view = client.post("/api/view", json={"model": "rela", "source": "The dog sleeps .", "target": target}).json()
    assert not view["forced"]
    assert view["target"] == tiny_translator("rela-g").translate(["The dog sleeps ."])[0]


def test_gold_is_found_however_the_words_are_spaced(client, views):
    first = views.examples[0]
    spaced = {"source": first.source.replace(" ", "  "), "target": f" {first.target}\n"}
    view = client.post("/api/view", json={"model": "rela", **spaced}).json()
    assert view["gold"]["sure"] == [list(link) for link in sorted(first.gold.sure)]
    other = client.post("/api/view", json={"model": "rela", "source": "A dog .", "target": "Ein Hund ."}).json()
    assert other["gold"] is None


@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_come_back_as_text(client, text):
    for asked in ({"source": text, "target": text}, {"source": f"The {text}"}):
        answer = client.post("/api/view", json={"model": "rela", **asked})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        view = answer.json()
        assert view["source"] == asked["source"]
        written = "".join(view["attention"]["encoder"]["word"]["keys"][:-1])
        assert written == "".join(asked["source"].replace("▁", "_").split())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.none() | st.text(max_size=60))
@example("\x85", " ")
@example("\x1c\x1d", "\x00")
def test_any_text_is_shown_or_refused(client, source, target):
    answer = client.post("/api/view", json={"model": "rela", "source": source, "target": target})
    if answer.status_code == 200:
        assert answer.json()["source"] == source
    else:
        refused(answer, answer.status_code)
        assert answer.status_code in (413, 422)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"model": "rela", "source": "\xff"}')
@example(b'{"model": NaN, "source": Infinity}')
def test_any_bytes_are_answered(client, body):
    for path in ("/api/view", "/api/export"):
        answer = client.post(path, content=body, headers=JSON)
        assert 400 <= answer.status_code < 500
        refused(answer, answer.status_code)


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"model": "rela", "source": "a" * 50_000}, 413, "50,000 characters"),
        ({"model": "rela", "source": "é" * (MAX_CHARACTERS + 1)}, 413, "at most 4,000"),
        ({"model": "rela", "source": "a", "target": "🎉" * 50_000}, 413, "larger than"),
        ({"model": "rela", "source": "dog " * 150}, 413, "subwords"),
        ({"model": "rela", "source": "dog", "target": "Hund " * 150}, 413, "the target has"),
        ({"model": "rela", "source": ""}, 422, "source is empty"),
        ({"model": "rela", "source": " \u2003\n"}, 422, "source is empty"),
        ({"model": "none", "source": "dog"}, 404, "rela or soft"),
        ({"model": ["rela"], "source": "dog"}, 422, "model is a list"),
        ({"model": "rela", "source": 7}, 422, "source is a int"),
        ({"model": "rela", "source": "dog", "target": {}}, 422, "target is a dict"),
        ({"model": "rela"}, 422, "source is missing"),
        ({"model": "rela", "source": "dog", "off": "cross"}, 422, "off is a str"),
        ({"model": "rela", "source": "dog", "off": ["cross"]}, 422, "attention type, layer and head"),
        ({"model": "rela", "source": "dog", "off": [["cross", True, 0]]}, 422, "attention type, layer and head"),
        ({"model": "rela", "source": "dog", "off": [["sideways", 0, 0]]}, 422, "wanted one of encoder"),
        ({"model": "rela", "source": "dog", "off": [["cross", 0, 2]]}, 422, "2 layers of 2 heads"),
        ({"model": "rela", "source": "dog", "<b>": 1}, 422, "unknown fields"),
        (["rela"], 422, "a JSON list"),
    ],
)
def test_what_is_refused_says_why(client, asked, status, says):
    assert says in refused(client.post("/api/view", json=asked), status)


def test_half_a_character_is_refused(client):
    answer = client.post("/api/view", content=b'{"model": "rela", "source": "\\ud800"}', headers=JSON)
    assert "surrogate" in refused(answer, 422)


def test_heads_are_switched_off_once_and_only_for_this_answer(client):
    asked = {"model": "rela", "source": "The dog sleeps ."}
    before = client.post("/api/view", json=asked).json()
    off = client.post("/api/view", json={**asked, "off": [["cross", 0, 1]] * 3}).json()
    assert off["ablation"]["off"] == [["cross", 0, 1]]
    assert off["ablation"]["translation_before"] == before["target"]
    assert client.post("/api/view", json=asked).json() == before


@pytest.mark.parametrize("off", [[[["cross", 0, 0]]], [["cross", 0, 0], []], [1, 2]])
def test_an_export_wants_the_heads_of_each_model(client, off):
    refused(client.post("/api/export", json={"models": ["rela", "soft"], "source": "dog", "off": off}), 422)


@pytest.mark.parametrize("models", [[], ["rela", "soft", "rela"], [1], "rela", ["none"]])
def test_an_export_of_unknown_models_is_refused(client, models):
    answer = client.post("/api/export", json={"models": models, "source": "dog"})
    refused(answer, 404 if models == ["none"] else 422)


def test_other_doors_are_closed(client):
    refused(client.post("/api/view", content=b"{}", headers={"content-type": "text/plain"}), 415)
    refused(client.get("/api/view"), 405)
    refused(client.get("/nothing/here"), 404)
    refused(client.get("/docs"), 404)
    refused(client.get("/openapi.json"), 404)
    for name in ("..%2f..%2fcli.py", "%2e%2e/export.py", "index.html", "%00", "style.css/", "x" * 5000):
        refused(client.get(f"/static/{name}"), 404)
    refused(client.get("/api/start", headers={"host": "evil.example"}), 421)
    refused(client.get("/api/start", headers={"host": "127.0.0.1.evil.example:80"}), 421)
    refused(
        client.options("/api/view", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}),
        405,
    )


def test_every_answer_allows_only_its_own(client):
    for path in ("/", "/static/page.js", "/static/style.css", "/static/icon.svg", "/api/start", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "script-src 'self';" in policy
        assert not any(word in policy for word in ("unsafe", "http:", "https:", "data:", "*"))
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_asks_only_for_files_that_are_there(client):
    page = client.get("/").text
    names = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert names
    for name in names:
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        assert answer.text.strip()


def test_visitors_at_once_get_what_they_would_get_alone(client):
    pairs = toy_pairs(8, seed=9)

    def ask(pair):
        return client.post("/api/view", json={"model": "rela", "source": pair[0], "target": pair[1]}).json()

    alone = [ask(pair) for pair in pairs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, pairs)) == alone


@pytest.mark.parametrize("target", ["Der Hund .", None])
def test_a_model_of_no_numbers_is_a_refusal_and_no_crash(broken_address, target):
    for _ in range(2):
        asked = {"model": "broken", "source": "The dog .", "target": target}
        refused(httpx.post(f"{broken_address}/api/view", json=asked, trust_env=False), 422)
    assert httpx.get(f"{broken_address}/api/start", trust_env=False).status_code == 200


def test_a_busy_port_is_one_line(views):
    from rela.explorer.server import serve

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(ValueError, match="cannot be opened"):
            serve(views, listener.getsockname()[1])
    with pytest.raises(ValueError, match="cannot be opened"):
        serve(views, 70_000)
