"""Configurations: what is shipped loads, what is written reads back equal, what is wrong is named."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rela.config import (
    Config,
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    from_dict,
    load_config,
    save_config,
    to_dict,
)
from rela.data.datasets import DATASETS

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_loads(path):
    config = load_config(path)
    assert config.data.train, "a config without training text trains nothing"
    assert config.data.valid is not None
    assert from_dict(Config, to_dict(config), "again") == config


def test_configs_of_public_corpora_name_the_files_that_are_downloaded():
    named = 0
    for path in CONFIGS:
        found = re.search(r"rela data get (\S+) --out (\S+)", path.read_text(encoding="utf-8"))
        if found is None:
            continue
        named += 1
        dataset, data = DATASETS[found[1]], load_config(path).data
        assert data.root == f"{found[2]}/{dataset.name}"
        assert (data.source_language, data.target_language) == dataset.languages
        assert data.valid is not None
        assert data.test is not None
        for corpus in (*data.train, data.valid, data.test):
            written = [tuple(f"{part.name}.{language}" for language in dataset.languages) for part in dataset.parts]
            assert (corpus.source, corpus.target) in written, path.name
    assert named >= 3


def test_there_are_configs_for_the_paper_and_for_every_listed_corpus():
    assert {"transformer-base", "europarl-en-de", "multi30k-en-de"} <= {path.stem for path in CONFIGS}


def test_transformer_base_is_the_papers_setting():
    config = load_config(next(path for path in CONFIGS if path.stem == "transformer-base"))
    model, train, decode = config.model, config.train, config.decode
    assert (model.width, model.heads, model.encoder_layers, model.decoder_layers, model.feed_forward) == (
        512,
        8,
        6,
        6,
        2048,
    )
    assert (model.dropout, model.norm_first, config.data.vocabulary_size) == (0.1, False, 32000)
    assert (train.warmup, train.tokens, train.beta1, train.beta2, train.label_smoothing) == (
        4000,
        25000,
        0.9,
        0.98,
        0.1,
    )
    assert (decode.beam, decode.length_penalty, train.average_last) == (4, 0.6, 5)


@given(
    weight=st.floats(1e-6, 1e6),
    epsilon=st.floats(1e-12, 1e-3),
    language=st.sampled_from(["no", "off", "null", "yes", "1e5", "12", "de", "~"]),
    threshold=st.one_of(st.floats(-3, 3), st.just("learned")),
    sparsity=st.one_of(st.none(), st.floats(0, 1)),
    compiled=st.sampled_from(["on", "off", "auto"]),
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20),
)
def test_saved_configs_read_back_equal(
    tmp_path_factory, weight, epsilon, language, threshold, sparsity, compiled, name
):
    corpus = CorpusConfig(name, "b.de.xz", weight)
    config = Config(
        DataConfig(source_language=language, train=(corpus, corpus), valid=corpus, root=name),
        ModelConfig(threshold=threshold, target_sparsity=sparsity),
        TrainConfig(epsilon=epsilon, compile=compiled),
    )
    path = tmp_path_factory.mktemp("round") / "trip.yaml"
    save_config(config, path)
    assert load_config(path) == config


def test_what_is_left_out_keeps_its_default(tmp_path):
    config = load_config(write(tmp_path, "train: {steps: 7}"))
    assert config == dataclasses.replace(Config(), train=TrainConfig(steps=7))
    assert load_config(write(tmp_path, "")) == Config()


def test_only_true_and_false_are_truth_values(tmp_path):
    config = load_config(write(tmp_path, "data: {source_language: no}\ntrain: {compile: off, tensorboard: false}"))
    assert (config.data.source_language, config.train.compile, config.train.tensorboard) == ("no", "off", False)


def test_numbers_in_scientific_notation_are_numbers(tmp_path):
    assert load_config(write(tmp_path, "train: {epsilon: 1e-9}")).train.epsilon == 1e-9


def test_overrides_win_and_take_yaml_values(tmp_path):
    path = write(tmp_path, "train: {steps: 7}\nmodel: {width: 64}")
    config = load_config(path, ["train.steps=9", "train.compile=off", "model.threshold=learned", "decode.beam=1",
                                "data.train=[{source: a, target: b}]", "model.norm_first=true"])  # fmt: skip
    assert (config.train.steps, config.train.compile, config.decode.beam) == (9, "off", 1)
    assert (config.model.width, config.model.threshold, config.model.norm_first) == (64, "learned", True)
    assert config.data.train == (CorpusConfig("a", "b"),)


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
    "neither of two types": ("data: {valid: 3}", ["valid", "3", "CorpusConfig or nothing"]),
    "out of range": ("train: {label_smoothing: 1.5}", ["train: label_smoothing", "1.5", "[0, 1)"]),
    "not a number": ("train: {learning_rate: .nan}", ["learning_rate", "nan", "above 0"]),
    "heads that do not divide": ("model: {width: 100, heads: 7}", ["heads", "7", "100"]),
    "unknown choice": ("model: {tied_embeddings: some}", ["tied_embeddings", "'some'", '"target"']),
    "averaging what is not kept": ("train: {keep_last: 2, average_last: 3}", ["average_last", "keep_last"]),
    "not a mapping": ("- 1\n- 2", ["list", "data, model, train, decode"]),
    "broken YAML": ("train: {steps: 7", ["not valid YAML"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "named"), WRONG.values(), ids=WRONG.keys())
def test_wrong_configs_are_one_line_that_names_file_and_field(tmp_path, text, named):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=r"experiment\.yaml") as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in named), message


def test_a_config_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "latin1.yaml"
    path.write_bytes("data: {root: Müll}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin1\.yaml is not valid YAML: byte 14 is not UTF-8"):
        load_config(path)


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


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ModelConfig(width=0), "width"),
        (lambda: ModelConfig(dropout=1.0), "dropout"),
        (lambda: ModelConfig(threshold="learnt"), "threshold"),
        (lambda: ModelConfig(threshold=math.nan), "threshold"),
        (lambda: ModelConfig(target_sparsity=1.5), "target_sparsity"),
        (lambda: TrainConfig(steps=0), "steps"),
        (lambda: TrainConfig(steps=9, centring=10), "centring"),
        (lambda: TrainConfig(precision="fp16"), "precision"),
        (lambda: TrainConfig(epsilon=0.0), "epsilon"),
        (lambda: TrainConfig(beta2=1.0), "beta2"),
        (lambda: DecodeConfig(beam=0), "beam"),
        (lambda: DecodeConfig(temperature=0.0), "temperature"),
        (lambda: DecodeConfig(max_length_ratio=math.inf), "max_length_ratio"),
        (lambda: DataConfig(vocabulary_size=3), "vocabulary_size"),
        (lambda: DataConfig(on_bad_line="ignore"), "on_bad_line"),
        (lambda: CorpusConfig("a", "b", weight=0.0), "weight"),
    ],
)
def test_configs_made_in_python_check_themselves(make, field):
    with pytest.raises(ValueError, match=field):
        make()


def test_a_whole_number_is_a_threshold():
    assert ModelConfig(threshold=1).threshold == 1


def test_saving_leaves_no_other_file(tmp_path):
    save_config(Config(), tmp_path / "config.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))["train"]["steps"] == 100_000
