"""Where commands may write: nowhere that loses what they read, what a model is made of, or what is not theirs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rela.commands.outputs import check_outputs
from tests.commands.cases import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("run") / "model")


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMMANDS = {
    "translate": "translate {model} {source} --out {out}",
    "score": "score {model} {source} {target} --out {out}",
    "align": "align {model} {source} {target} --out {out}",
    "filter": "filter {model} {source} {target} --out {out}",
    "kept": "filter {model} {source} {target} --keep 0.5 --out new.tsv --kept-source {out} --kept-target b",
    "plot": "plot heads {model} {source} {target} --out {out}.png",
    "check": "check {model} {source} {target} --out {out}",
    "card": "card {model} {source} {target} --out {out}",
    "notes": "card {model} --notes {source} --out {out}",
    "explore": "explore {model} --out {out} --sentence dog",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["input", "link", "hard link", "model file", "new in model", "hard link to model"])
def test_no_command_writes_over_what_it_reads(fails, model, texts, monkeypatch, command, place):
    monkeypatch.chdir(texts)
    ending = ".png" if command == "plot" else ""
    source, out = texts / "source.en", texts / f"out{ending}"
    weights = model / "model.safetensors"
    match place:
        case "input":
            out = source = source.rename(texts / f"source{ending}")
        case "link":
            out.symlink_to(source)
        case "hard link":
            os.link(source, out)
        case "model file":
            if ending:
                pytest.skip("no picture has the name of a file of a model")
            out = weights
        case "new in model":
            out = model.parent / "model" / f"new{ending}"
        case _:
            os.link(weights, out)
    if command == "explore" and "model" not in place:
        pytest.skip("it reads no text here")
    words = COMMANDS[command].format(
        model=model.parent, source=source, target=texts / "target.de", out=str(out).removesuffix(".png")
    )
    before = contents(texts), contents(model)
    named = "lies in the model folder" if place == "new in model" else "wanted another file to write"
    fails(*words.split(" "), named=named)
    assert (contents(texts), contents(model)) == before


def test_one_file_for_each_output_and_no_folder(fails, model, texts, monkeypatch):
    monkeypatch.chdir(texts)
    filtered = ["filter", model, "source.en", "target.de", "--keep", 0.5, "--out", "a.tsv"]
    fails(*filtered, "--kept-source", "b", "--kept-target", texts / "b", named="are one file")
    fails(*filtered, "--kept-source", "a.summary.json", "--kept-target", "b", named="are one file")
    fails("filter", model, "source.en", "target.de", "--out", texts, named="Is a directory")
    fails("analyse", model, "source.en", "target.de", "--out", model / "report", named="lies in the model folder")


def test_gold_links_are_an_input_too(fails, model, texts, monkeypatch):
    monkeypatch.chdir(texts)
    (texts / "gold").write_text("0-0\n")
    page = ["explore", model, "source.en", "target.de", "--gold", "gold", "--sentence", "dog"]
    fails(*page, "--out", "gold", named="gold is an input")


def test_devices_and_fifos_may_be_read_and_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_outputs([tmp_path / "pipe"], [tmp_path / "pipe"])
    check_outputs([tmp_path / "new", None], [tmp_path / "gone", None, "-"])


def test_text_goes_into_devices_and_through_links(call, model, texts):
    (texts / "there").mkdir()
    (texts / "link.de").symlink_to("there/out.de")
    assert call("translate", model, texts / "source.en", "--beam", 1, "--out", texts / "link.de")[0] == 0
    assert (texts / "link.de").is_symlink()
    wanted = (texts / "there" / "out.de").read_text("utf-8")
    for out in ("/dev/stdout", "-"):
        assert call("translate", model, texts / "source.en", "--beam", 1, "--out", out) == (0, wanted, "")
    assert call("translate", model, texts / "source.en", "--beam", 1, "--out", os.devnull) == (0, "", "")
    assert not os.path.isfile(os.devnull)


def test_an_average_replaces_a_model_and_nothing_else(call, fails, model, tmp_path):
    out = tmp_path / "mean"
    assert call("average", model, "--out", out)[0] == 0
    assert call("average", model, "--out", out)[0] == 0
    (out / "notes.txt").write_text("mine")
    fails("average", model, "--out", out, named="holds notes.txt, which would be lost")
    assert (out / "notes.txt").read_text() == "mine"
    copy = shutil.copytree(model, tmp_path / "copy")
    fails("average", copy, model, "--out", copy, named="lies in the model folder")


def test_the_embedded_corpus_replaces_only_itself(call, fails, tmp_path):
    few = ["--train", 5, "--valid", 3, "--test", 2]
    (tmp_path / "notes").write_text("mine")
    assert call("data", "toy", "--out", tmp_path, *few)[0] == 0
    assert call("data", "toy", "--out", tmp_path, *few)[0] == 0
    (tmp_path / "valid.de").write_text("mine\n")
    before = contents(tmp_path)
    fails("data", "toy", "--out", tmp_path, *few, named="valid.de is there and holds other text")
    assert contents(tmp_path) == before
    assert call("data", "toy", "--out", tmp_path, *few, "--force")[0] == 0
    assert (tmp_path / "valid.de").read_text() != "mine\n"
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS.values(),
        "check {model} {source} {target} --page {out}",
        "check {model} {source} {target} --calibrate",
        "fit-aligner {model} {source} {target}",
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(fails, model, texts, tmp_path, monkeypatch, command):
    """A page, or what a model folder gets, is written at the end of all work."""
    locked, able = (tmp_path / "locked", shutil.copytree(model, tmp_path / "run" / "model")), os.access
    locked[0].mkdir()
    monkeypatch.chdir(texts)

    def access(path, mode):  # root could write into any folder
        return able(path, mode) and not (mode == os.W_OK and Path(path) in locked)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr("rela.decoding.translate.Translator.encode_pair", None)
    words = command.format(model=locked[1], source="source.en", target="target.de", out=locked[0] / "new")
    fails(*words.split(), named="Permission denied")
