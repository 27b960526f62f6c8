"""What is shipped loads and is the paper's setting; what is made in Python has its types."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from rela.config import (
    Config,
    ModelConfig,
    from_dict,
    load_config,
    to_dict,
)
from rela.config.conversion import key_of
from rela.data.datasets import DATASETS

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


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


def test_a_whole_number_is_a_threshold():
    assert ModelConfig(threshold=1).threshold == 1


ODD = [*("text", "", "1e400", "nan"), *(-(10**30), -1, 0, 1, 2**32, 2**63 - 1, 2**63, 10**400), True, None, [], [1], {}]
ODD += [{"a": 1}, -0.5, 1.5, 1e-320, 1e308, math.nan, math.inf, -math.inf]
SECTIONS = {item.name: item.default_factory for item in dataclasses.fields(Config)}


@pytest.mark.parametrize("section", SECTIONS)
def test_any_value_of_any_field_is_taken_or_refused_by_name(section):
    for item in dataclasses.fields(SECTIONS[section]):
        key = key_of(item.name)
        for value in ODD:
            refusal, taken = "", Config()
            try:
                taken = from_dict(Config, {section: {key: value}}, "file")
            except ValueError as error:
                refusal = str(error)
            assert not refusal or key in refusal
            found = getattr(getattr(taken, section), item.name)
            assert not (isinstance(found, float) and math.isnan(found)), (key, value)
            assert not (isinstance(found, int) and abs(found) > 2**63), (key, value)


@pytest.mark.parametrize(
    ("section", "values", "named"),
    [
        ("train", {"weight_decay": math.inf}, "weight_decay is inf; wanted a finite number"),
        ("train", {"sparsity_weight": math.inf}, "sparsity_weight is inf; wanted a finite number"),
        ("train", {"learning_rate": 10**400}, "wanted a number below 1e308"),
        ("train", {"seed": 10**30}, "wanted a whole number of 64 bits"),
        ("data", {"vocabulary_size": 2**32}, "wanted at most 16,777,216"),
        ("model", {"width": 2**62}, "wanted at most 16,777,216"),
        ("model", {"feed_forward": 2**62}, "wanted at most 16,777,216"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(section, values, named):
    with pytest.raises(ValueError, match=named):
        from_dict(Config, {section: values}, "file")
