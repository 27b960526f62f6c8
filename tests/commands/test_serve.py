"""`rela serve`: serves until it is told to stop, or says in one line why not."""

import os
import re
import signal

import pytest

from rela.cli import main
from tests.forking import Forked
from tests.tiny_models import tiny_folder

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
httpx = pytest.importorskip("httpx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    tiny_folder(place / "de-en")
    return place / "de-en"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "is called de-en, and its config says en to de"),
        (["--port", "70000"], "port 70000"),
        (["--batch", "0"], "batch is 0"),
        (["--precision", "int4"], "precision is 'int4'"),
        (["--api-keys", "{folder}/config.yaml", "--explorer"], "--no-explorer"),
        (["--api-keys", "{folder}/missing"], "missing"),
    ],
)
def test_the_command_refuses_in_one_line(folder, capsys, options, says):
    model = f"en-de={folder}" if options else str(folder)
    with pytest.raises(SystemExit) as end:
        main(["serve", model, *(option.format(folder=folder) for option in options)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("rela: error: ")
    assert error.count("\n") == 1
    assert says in error


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_stop(folder, sent):
    reader, writer = os.pipe()
    process = Forked(["serve", f"en-de={folder}", "--port", 0, "--device", "cpu"], stdout=writer)
    os.close(writer)
    with open(reader, encoding="utf-8") as output:
        try:
            line = output.readline()
            assert "en-de (en to de)" in line
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
            with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
                assert client.get("health").json() == {"status": "ok"}
                asked = {"q": "", "source": "en", "target": "de"}
                assert client.post("translate", json=asked).json() == {"translatedText": ""}
                assert len(client.get("explorer/api/start").json()["examples"]) > 5
                process.send_signal(sent)  # while this client's connection is still open
                _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert error == ""
