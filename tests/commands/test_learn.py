"""The commands that lead from text to a model: what they write, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import torch

from rela.config import load_config
from rela.decoding.translate import Translator
from tests.commands.cases import SOURCES


def test_models_are_averaged(call, model, tmp_path):
    assert call("average", model, model, "--out", tmp_path / "mean")[0] == 0
    one, two = (Translator.load(path, "cpu").model.state_dict() for path in (model, tmp_path / "mean"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_half_precision_halves_the_file_and_changes_weights_by_their_rounding_alone(call, model, tmp_path):
    assert call("average", model, "--half", "--out", tmp_path / "half")[0] == 0
    one, two = (Translator.load(path, "cpu").model.state_dict() for path in (model, tmp_path / "half"))
    assert all(two[name].dtype == torch.float32 for name in two)
    assert all(torch.equal(one[name].half().float(), two[name]) for name in one)
    whole, half = ((path / "model.safetensors").stat().st_size for path in (model, tmp_path / "half"))
    assert half < 0.6 * whole


def test_wrong_names(fails, tmp_path):
    gone = tmp_path / "gone"
    fails("data", "get", "no-such-corpus", named="no-such-corpus")
    fails("data", "toy", "--out", tmp_path / "toy", "--train", -1, named="-1")
    fails("average", gone, "--out", tmp_path / "mean", named=str(gone))
    fails("train", tmp_path / "gone.yaml", named="gone.yaml")
    fails("prepare", tmp_path / "gone.yaml", named="gone.yaml")
    assert list(tmp_path.iterdir()) == []


def write_config(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return path


def test_settings_are_printed_as_they_will_be_used(call, tmp_path):
    path = write_config(tmp_path, "{data: {vocabulary_size: 800}, model: {width: 16, heads: 2}}")
    chosen = ["--kind", "softmax", "--set", "model.cross_attention=relu", "--set", "train.steps=7"]
    code, output, errors = call("config", path, *chosen)
    assert (code, errors) == (0, "")
    overrides = [f"model.{type}_attention=softmax" for type in ("encoder", "decoder")]
    overrides += ["model.vocabulary_size=800"]  # training takes that of the data
    wanted = load_config(path, [*overrides, "model.cross_attention=relu", "train.steps=7"])
    (tmp_path / "printed.yaml").write_text(output)
    assert load_config(tmp_path / "printed.yaml") == wanted


def test_bad_configs_and_corpora(fails, texts):
    train = "[{source: source.en, target: target.de}]"
    good = f"data: {{root: {texts}, train: {train}, directory: {texts}/ids, vocabulary_size: 200}}"
    for command in ("prepare", "train"):
        fails(command, write_config(texts, "data: {vocabulary: 3}"), named="vocabulary")
        fails(command, write_config(texts, "data: {vocabulary_size: big}"), named="'big'")
        fails(command, write_config(texts, "train: {steps: 0}"), named="steps is 0")
        fails(command, write_config(texts, good), "--set", "train.stops=3", named="stops")
        fails(command, write_config(texts, good), "--set", "nonsense", named="nonsense")
    fails("prepare", write_config(texts, "data: {}"), named="data.train is empty")
    fails("train", write_config(texts, good), named="rela prepare")
    (texts / "short").write_text("ein Hund\n")
    fails("prepare", write_config(texts, good.replace("target.de", "short")), named="unequal line counts")
    fails("prepare", write_config(texts, good.replace("target.de", "gone")), named="gone")
    for name in ("nothing.en", "nothing.de"):
        (texts / name).write_text("")
    fails(
        "prepare",
        write_config(texts, good.replace("source.en", "nothing.en").replace("target.de", "nothing.de")),
        named="nothing",
    )
    (texts / "latin1").write_bytes(b"\xff\n" * len(SOURCES))
    fails(
        "prepare",
        write_config(texts, good.replace("target.de", "latin1")),
        "--set",
        "data.on_bad_line=raise",
        named="latin1, line 1: not UTF-8",
    )
    fails("prepare", write_config(texts, good), "--set", "data.vocabulary_size=9999", named="9999")
