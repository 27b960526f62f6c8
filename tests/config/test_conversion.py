"""From plain values to configurations: defaults, types, and errors that name file and field."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rela.config import (
    Config,
    TrainConfig,
    from_dict,
    load_config,
    to_dict,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_left_out_keeps_its_default(tmp_path):
    config = load_config(write(tmp_path, "train: {steps: 7}"))
    assert config == dataclasses.replace(Config(), train=TrainConfig(steps=7))
    assert load_config(write(tmp_path, "")) == Config()


def test_only_true_and_false_are_truth_values(tmp_path):
    config = load_config(write(tmp_path, "data: {source_language: no}\ntrain: {compile: off, tensorboard: false}"))
    assert (config.data.source_language, config.train.compile, config.train.tensorboard) == ("no", "off", False)


def test_numbers_in_scientific_notation_are_numbers(tmp_path):
    assert load_config(write(tmp_path, "train: {epsilon: 1e-9}")).train.epsilon == 1e-9


# What is in the file, and what the one line must name besides the file.
WRONG = {
    "unknown section": ("trian: {steps: 7}", ["trian", "train"]),
    "unknown key": ("train: {step: 7}", ["train:", "step", "steps"]),
    "unknown key of a corpus": ("data: {train: [{source: a, target: b, wieght: 2}]}", ["train[0]", "wieght", "weight"]),
    "unknown key of an optional section": ("data: {valid: {source: a, targt: b}}", ["valid", "targt", "target"]),
    "missing key": ("data: {train: [{source: a}]}", ["train[0]", "target"]),
    "text for a number": ("train: {steps: many}", ["train: steps", "'many'", "whole number"]),
    "fraction for a count": ("train: {steps: 1.5}", ["train: steps", "1.5", "whole number"]),
    "truth for a number": ("train: {learning_rate: true}", ["learning_rate", "True", "a number"]),
    "number for a name": ("model: {encoder_attention: 3}", ["encoder_attention", "3", "text"]),
    "number for truth": ("model: {norm_first: 1}", ["norm_first", "1", "true or false"]),
    "text for a list": ("data: {train: corpus.en}", ["train", "'corpus.en'", "a list"]),
    "list for a section": ("train: [1, 2]", ["train", "[1, 2]", "mapping"]),
    "neither of two types": ("data: {valid: 3}", ["valid", "3", "a mapping of source, target, weight or nothing"]),
    "out of range": ("train: {label_smoothing: 1.5}", ["train: label_smoothing", "1.5", "[0, 1)"]),
    "not a number": ("train: {learning_rate: .nan}", ["learning_rate", "nan", "above 0"]),
    "heads that do not divide": ("model: {width: 100, heads: 7}", ["heads", "7", "100"]),
    "unknown choice": ("model: {tied_embeddings: some}", ["tied_embeddings", "'some'", '"target"']),
    "averaging what is not kept": ("train: {keep_last: 2, average_last: 3}", ["average_last", "keep_last"]),
    "not a mapping": ("- 1\n- 2", ["list", "data, model, train, decode"]),
    "broken YAML": ("train: {steps: 7", ["not valid YAML"]),
}


@pytest.mark.parametrize(("text", "named"), WRONG.values(), ids=WRONG.keys())
def test_wrong_configs_are_one_line_that_names_file_and_field(tmp_path, text, named):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=r"experiment\.yaml") as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in named), message


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.steps", "key=value"),
        ("=5", "key=value"),
        ("train.steps=[1", "not valid YAML"),
        ("train.stops=5", "stops"),
        ("train.steps=many", "whole number"),
        ("train.steps.more=5", "not a section"),
    ],
)
def test_wrong_overrides_are_one_line(tmp_path, override, named):
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as caught:
        load_config(write(tmp_path, "train: {steps: 7}"), [override])
    assert named in str(caught.value)


def test_a_field_whose_name_is_a_word_of_python_has_the_plain_key():
    config = from_dict(TrainConfig, {"from": "runs/a"}, "here")
    assert config.from_ == "runs/a"
    assert to_dict(config)["from"] == "runs/a"
    assert "from_" not in to_dict(config)
    with pytest.raises(ValueError, match="has no field from_"):
        from_dict(TrainConfig, {"from_": "runs/a"}, "here")
