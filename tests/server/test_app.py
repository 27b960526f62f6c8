"""The server gives what the commands give for the same lines, whatever the batching, and refuses in one line."""

import dataclasses
import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from rela.cli import main
from rela.decoding.translate import Translator
from rela.server.app import TranslationServer
from rela.server.settings import ServerSettings
from tests.server.conftest import at_once, busy, httpx, serving, until
from tests.tiny_models import toy_pairs
from tests.web.serving import connect, read_all, refused, running

HEAD = (
    b"POST /v1/translate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
JSON = {"content-type": "application/json"}
PAIRS = [*toy_pairs(24, seed=3), ("", ""), ("The", "Der"), ("a b", ""), ("☃ {x} <b>", "é")]


def command(capsys, *arguments):
    """What a command prints, line by line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    assert end.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def texts(tmp_path):
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("".join(f"{pair[0]}\n" for pair in PAIRS), encoding="utf-8")
    target.write_text("".join(f"{pair[1]}\n" for pair in PAIRS), encoding="utf-8")
    return source, target


def asked_alone_and_together(client, path, key, items, answers, **options):
    """The answers to each item asked by itself, many clients at a time, after the same asked in one request."""

    def ask(part):
        answer = client.post(path, json={"model": "en-de", key: part, **options})
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "en-de"
        return answer.json()[answers]

    together = ask(items)
    assert [result for part in at_once(ask, [[item] for item in items]) for result in part] == together
    thirds = [items[start : start + 3] for start in range(0, len(items), 3)]
    assert [result for part in at_once(ask, thirds) for result in part] == together
    return together


def test_translations_are_those_of_the_command(client, server, folders, texts, capsys):
    lines = command(capsys, "translate", folders["en-de"], texts[0], "--nbest", 2, "--format", "jsonl")
    rows = [json.loads(line) for line in lines]
    found = asked_alone_and_together(
        client, "/v1/translate", "texts", [pair[0] for pair in PAIRS], "translations", nbest=2
    )
    flat = [
        {"line": number, "rank": rank, "source": PAIRS[number][0], "translation": h["text"]}
        | {k: h[k] for k in ("score", "log_prob")}
        for number, group in enumerate(found)
        for rank, h in enumerate(group)
    ]
    assert flat == rows
    sizes = client.get("/metrics").text
    assert 'rela_batch_sentences_bucket{le="32.0",model="en-de"}' in sizes


def test_options_of_a_request_are_those_of_the_command(client, folders, texts, capsys):
    options = {"beam": 3, "length_penalty": 2.0}
    lines = command(capsys, "translate", folders["en-de"], texts[0], "--beam", 3, "--length-penalty", 2)
    asked = {"model": "en-de", "texts": [pair[0] for pair in PAIRS], **options}
    found = client.post("/v1/translate", json=asked).json()["translations"]
    assert [best[0]["text"] for best in found] == lines
    assert lines != command(capsys, "translate", folders["en-de"], texts[0])


def test_scores_are_those_of_the_command(client, folders, texts, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # the command warns of the two pairs that have no score
        lines = command(capsys, "score", folders["en-de"], *texts, "--format", "jsonl")
    rows = [json.loads(line) for line in lines]
    assert [row["log_prob"] is None for row in rows] == [not (source and target) for source, target in PAIRS]
    pairs = [{"source": source, "target": target} for source, target in PAIRS]
    assert asked_alone_and_together(client, "/v1/score", "pairs", pairs, "scores", tokens=True) == rows
    brief = client.post("/v1/score", json={"pairs": pairs[:2]}).json()["scores"]
    assert brief == [{"log_prob": row["log_prob"]} for row in rows[:2]]


def test_links_are_those_of_the_command(client, folders, texts, capsys):
    lines = command(capsys, "align", folders["en-de"], *texts)
    pairs = [{"source": source, "target": target} for source, target in PAIRS]
    found = asked_alone_and_together(client, "/v1/align", "pairs", pairs, "alignments")
    assert [" ".join(f"{s}-{t}" for s, t in links) for links in found] == lines
    read = [client.post("/v1/align", json={"model": name, "pairs": pairs[:1]}).json() for name in ("en-de", "de-en")]
    assert [(answer["read_from"].split(",")[1], answer["chosen"]) for answer in read] == [
        (" head 1", True),
        (" mean of all heads", False),
    ]


def test_checks_are_those_of_the_command(client, folders, texts, capsys):
    rows = [json.loads(line) for line in command(capsys, "check", folders["en-de"], *texts, "--format", "jsonl")]
    left_out = ("line", "source", "target", "reverse", "null_by_head")
    expected = [{name: value for name, value in row.items() if name not in left_out} for row in rows]
    pairs = [{"source": source, "target": target} for source, target in PAIRS]
    assert asked_alone_and_together(client, "/v1/check", "pairs", pairs, "checks") == expected
    assert client.post("/v1/check", json={"pairs": pairs[:1]}).json()["calibrated"] is False
    assert {row["problem"] for row in expected} == {"", "empty"}


def test_models_are_found_by_name_and_by_language(client, translators):
    listed = client.get("/v1/models").json()
    assert [(model["name"], model["source"], model["target"]) for model in listed] == [
        ("en-de", "en", "de"),
        ("de-en", "de", "en"),
    ]
    expected = {name: translator.translate(["The dog ."])[0] for name, translator in translators.items()}
    assert expected["en-de"] != expected["de-en"]
    for asked, name in (
        ({}, "en-de"),
        ({"model": "de-en"}, "de-en"),
        ({"source": "de"}, "de-en"),
        ({"target": "de"}, "en-de"),
        ({"source": "de", "target": "en", "model": "de-en"}, "de-en"),
    ):
        answer = client.post("/v1/translate", json={"texts": ["The dog ."], **asked}).json()
        assert (answer["model"], answer["translations"][0][0]["text"]) == (name, expected[name])
    for asked in ({"model": "fr"}, {"source": "fr"}, {"model": "en-de", "source": "de"}):
        answer = client.post("/v1/translate", json={"texts": ["The dog ."], **asked})
        assert "en-de (en to de), de-en (de to en)" in refused(answer, 404)


@pytest.mark.parametrize(
    ("path", "asked", "status", "says"),
    [
        ("translate", {"texts": ["dog"] * 257}, 413, "257 sentences"),
        ("translate", {"texts": ["x" * 60_000] * 2}, 413, "120,000 characters"),
        ("translate", {"texts": ["dog", "dog " * 200]}, 413, "text 2 has"),
        ("score", {"pairs": [{"source": "dog", "target": "Hund " * 200}]}, 413, "target 1 has"),
        ("translate", {"texts": ["one\ntwo"]}, 422, "text 1 holds a line break"),
        ("align", {"pairs": [{"source": "a", "target": "b\n"}]}, 422, "target 1 holds a line break"),
        ("translate", {"texts": []}, 422, "texts"),
        ("translate", {"texts": "dog"}, 422, "texts"),
        ("translate", {"texts": [7]}, 422, "texts.0"),
        ("translate", {"texts": ["dog"], "beam": 9}, 422, "beam is 9"),
        ("translate", {"texts": ["dog"], "beam": 0}, 422, "beam"),
        ("translate", {"texts": ["dog"], "beam": True}, 422, "beam"),
        ("translate", {"texts": ["dog"], "nbest": 3}, 422, "at most the beam, 2"),
        ("translate", {"texts": ["dog"], "length_penalty": 11}, 422, "length_penalty"),
        ("translate", {"texts": ["dog"], "seed": 1}, 422, "seed"),
        ("score", {"pairs": [{"source": "dog"}]}, 422, "pairs.0.target"),
        ("score", {"pairs": [["dog", "Hund"]]}, 422, "pairs.0: wanted a JSON object"),
        ("score", [], 422, "the request: wanted a JSON object"),
    ],
)
def test_what_is_refused_says_why(client, path, asked, status, says):
    assert says in refused(client.post(f"/v1/{path}", json=asked), status)


def test_other_doors_are_closed(client):
    assert "Content-Type: application/json" in refused(client.post("/v1/translate", content=b'{"texts": ["x"]}'), 422)
    assert "JSON" in refused(client.post("/v1/translate", headers=JSON, content=b"{"), 422)
    assert refused(client.post("/v1/translate", headers=JSON, content=b'{"texts": ["\\ud800"]}'), 422)
    assert refused(client.post("/v1/translate", headers=JSON, content=b'{"texts": ["x"], "length_penalty": NaN}'), 422)
    assert refused(client.post("/v1/translate", headers=JSON, content=b"x" * (1 << 21)), 413)
    refused(client.get("/v1/translate"), 405)
    refused(client.get("/nothing/here"), 404)


def test_health_and_metrics(client):
    assert client.get("/health").json() == {"status": "ok"}
    client.get("/invented/by/a/client")
    text = client.get("/metrics").text
    assert 'rela_requests_total{path="other",status="404"}' in text
    assert "invented" not in text
    assert 'rela_sentences_waiting{model="de-en"} 0.0' in text
    assert "process_resident_memory_bytes" in text


def test_the_explorer_is_there_and_uses_the_same_models(client, translators):
    page = client.get("/explorer", follow_redirects=True)
    assert page.url.path == "/explorer/"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/explorer/static/page.js").status_code == 200
    view = client.post("/explorer/api/view", json={"model": "de-en", "source": "Der Hund ."}).json()
    assert view["target"] == translators["de-en"].translate(["Der Hund ."])[0]
    refused(client.post("/explorer/api/view", json={"model": "none", "source": "Der Hund ."}), 404)
    refused(client.post("/explorer/api/view", json={"model": "de-en", "source": ""}), 422)


def test_with_keys_only_those_who_know_one_are_answered(translators):
    settings = ServerSettings(api_keys=frozenset({"one", "zwei é"}), explorer=False)
    asked = {"texts": ["The dog ."]}
    with serving(TranslationServer(translators, settings)) as client:
        for headers in ({}, {"x-api-key": "on"}, {"authorization": "Basic one"}, {"authorization": "Bearer"}):
            assert "API key" in refused(client.post("/v1/translate", json=asked, headers=headers), 401)
            refused(client.get("/metrics", headers=headers), 401)
        for headers in ({"x-api-key": "one"}, {"authorization": "Bearer one"}, {"authorization": "bearer  one"}):
            assert client.post("/v1/translate", json=asked, headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200
        libre = {"q": "The dog .", "source": "en", "target": "de"}
        refused(client.post("/translate", json=libre), 403)
        refused(client.post("/translate", json=libre | {"api_key": "two"}), 403)
        assert client.post("/translate", json=libre | {"api_key": "zwei é"}).status_code == 200
        assert client.post("/translate", data=libre | {"api_key": "one"}).status_code == 200
        assert client.get("/health").status_code == 200
        refused(client.get("/explorer/"), 404)


def test_pages_of_other_sites_may_ask_only_if_allowed(client, translators):
    asked = {"origin": "https://site.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in client.options("/translate", headers=asked).headers
    settings = ServerSettings(origins=("https://site.example",))
    with serving(TranslationServer(translators, settings)) as open_client:
        allowed = open_client.options("/translate", headers=asked).headers["access-control-allow-origin"]
        assert allowed == "https://site.example"
        other = open_client.get("/languages", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_full_queue_is_told_to_come_back(translators):
    server = TranslationServer(translators, ServerSettings(queue=5, max_texts=5, batch=2))

    def ask(count):
        return client.post("/v1/translate", json={"texts": ["The dog ."] * count})

    with serving(server) as client, ThreadPoolExecutor(1) as pool:
        client.get("/health")
        model = server.models.by_name["en-de"]
        with busy(model):
            waiting = pool.submit(ask, 4)
            until(lambda: model.batcher.sentences == 4)
            answer = ask(2)
            assert "4 sentences wait" in refused(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert client.post("/v1/translate", json={"texts": ["x"], "model": "de-en"}).status_code == 200
        assert waiting.result().status_code == 200
        assert ask(5).status_code == 200


def test_a_client_that_leaves_is_no_longer_worked_for(translators):
    server = TranslationServer(translators)
    body = b'{"texts": ["The dog ."]}'
    with serving(server) as client:
        client.get("/health")
        model = server.models.by_name["en-de"]
        with busy(model):
            with connect(str(client.base_url)) as connection:
                connection.sendall(HEAD % len(body) + body)
                until(lambda: model.batcher.sentences == 1)
            until(lambda: model.batcher.sentences == 0)
        until(lambda: "rela_clients_left_total 1.0" in client.get("/metrics").text)
        assert 'task="translate"' not in client.get("/metrics").text


def test_a_client_that_leaves_within_its_body_leaves_no_traceback(client, server, caplog):
    for sent in (b"", b"{", b'{"texts": ["The dog .'):
        with connect(str(client.base_url)) as connection:
            connection.sendall(HEAD % 500 + sent)
    with connect(str(client.base_url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert b"ok" in read_all(connection)
    assert caplog.text == ""
    assert client.get("/health").status_code == 200


def test_requests_in_flight_are_answered_and_new_ones_refused_when_it_stops(translators):
    server = TranslationServer(translators)
    lines = [pair[0] for pair in PAIRS[:10]]
    body = json.dumps({"texts": lines}).encode()
    with running(server.limiter, server.app) as (address, http), connect(address) as waiting:
        assert httpx.get(f"{address}/health", trust_env=False).json() == {"status": "ok"}
        with busy(server.models.by_name["en-de"]):
            waiting.sendall(HEAD % len(body) + body)
            until(lambda: server.limiter.in_flight)
            http.stop()
            until(lambda: server.limiter.stopping)
            health = httpx.get(f"{address}/health", trust_env=False)
            assert (health.status_code, health.json()) == (503, {"status": "stopping"})
            refused(httpx.post(f"{address}/v1/translate", json={"texts": ["x"]}, trust_env=False), 503)
        head, _, answer = read_all(waiting).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
    found = json.loads(answer)["translations"]
    assert [best[0]["text"] for best in found] == translators["en-de"].translate(lines)
    assert not server.models.are_working


def test_a_model_that_samples_or_no_model_is_refused(translators):
    good = translators["en-de"]
    decode = dataclasses.replace(good.config.decode, sampling=True)
    drawing = Translator(good.model, good.subwords, dataclasses.replace(good.config, decode=decode), "cpu")
    with pytest.raises(ValueError, match="sampling"):
        TranslationServer({"x": drawing})
    with pytest.raises(ValueError, match="no model"):
        TranslationServer({})
