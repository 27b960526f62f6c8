"""`rela explore`: serves, exports, or says in one line why not."""

import json
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from rela.cli import main
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    for name, kind in (("one", "rela-g"), ("two", "softmax")):
        tiny_folder(place / name, kind)
    return [str(place / "one"), str(place / "two")]


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        main(["explore", *map(str, arguments)])
    return end.value.code


def saved_data(page):
    """What an exported page shows."""
    return json.loads(re.search(r'id="saved">([^<]*)<', page.read_text(encoding="utf-8"))[1])


def test_the_command_exports_several_models(folders, tmp_path, capsys):
    path = tmp_path / "look.html"
    assert run(*folders, "--out", path, "--sentence", "The dog sleeps .") == 0
    assert capsys.readouterr().out.strip() == str(path)
    data = saved_data(path)
    assert [(view["model"], view["forced"]) for view in data["views"]] == [("one", False), ("two", False)]


def test_the_command_reads_a_text_and_its_gold_links(folders, tmp_path):
    source, target, gold, path = (tmp_path / name for name in ("s.en", "t.de", "gold", "look.html"))
    source.write_text("The dog sleeps .\nThe cat sings .\n")
    target.write_text("Der Hund schläft .\nDie Katze singt .\n")
    gold.write_text("1-1 2-2\n1-1 3-2\n")
    pair = ["--sentence", "The cat sings .", "--translation", "Die Katze singt ."]
    found = []
    for options in ([], ["--gold", gold, "--gold-one-based"], ["--gold", gold, "--gold-one-based", "--gold-flipped"]):
        assert run(folders[0], source, target, *options, "--out", path, *pair) == 0
        data = saved_data(path)
        found.append(data["views"][0]["gold"] and data["views"][0]["gold"]["sure"])
    assert found == [None, [[0, 0], [2, 1]], [[0, 0], [1, 2]]]


def test_tokenised_text_keeps_its_gold_links(folders, tmp_path):
    """The model reads "The cat sings!"; the links are those of the five tokens all the same."""
    source, target, gold, path = (tmp_path / name for name in ("s.en", "t.de", "gold", "look.html"))
    source.write_text("The cat sings !\n")
    target.write_text("Die Katze singt !\n")
    gold.write_text("0-0 3-3\n")
    pair = ["--sentence", "The cat sings !", "--translation", "Die Katze singt !"]
    probable = []
    for options in ([], ["--tokenised"]):
        assert run(folders[0], source, target, "--gold", gold, *options, "--out", path, *pair) == 0
        (view,) = saved_data(path)["views"]
        assert view["gold"]["sure"] == [[0, 0], [3, 3]]
        assert view["attention"]["cross"]["word"]["keys"] == ["The", "cat", "sings", "!", "</s>"]
        probable.append(view["log_prob"])
    assert probable[0] != probable[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--out", "x.html"], "belong together"),
        (["--sentence", "The dog ."], "belong together"),
        (["--gold", "x.align"], "SRC TGT"),
        (["--out", "x.html", "--sentence", " "], "source is empty"),
        (["--out", "x.html", "--sentence", "a" * 50_000], "at most 4,000"),
        (["--port", "70000"], "port 70000"),
    ],
)
def test_the_command_refuses_in_one_line(folders, tmp_path, monkeypatch, capsys, options, says):
    monkeypatch.chdir(tmp_path)
    assert run(folders[0], *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("rela: error: ")
    assert error.count("\n") == 1
    assert says in error
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def interrupts_heard():
    """As from a terminal: what a script runs in the background inherits that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_heard")
def test_the_command_serves_until_interrupted(folders):
    """Also with one visitor who has left in the middle of a request, and one who never ends his."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "rela", "explore", f"mine={folders[0]}", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
            start = httpx.get(f"{address}api/start", timeout=60, trust_env=False).json()
            assert [model["name"] for model in start["models"]] == ["mine"]
            assert len(start["examples"]) > 5
            left, stays = begin_request(address), begin_request(address)
            left.close()
            assert httpx.get(f"{address}api/start", timeout=60, trust_env=False).status_code == 200
        finally:
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, error = process.communicate(timeout=60)
    assert (process.returncode, output, error) == (0, "", "")
    assert time.monotonic() - began < 30
    stays.close()


def begin_request(address):
    """A connection on which a part of a request has been sent."""
    connection = socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/", address)[1])), timeout=60)
    head = "POST /api/view HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 999"
    connection.sendall(f'{head}\r\n\r\n{{"model": '.encode())
    return connection
