"""What is shipped loads and is the paper's setting; what is made in Python has its types."""

from __future__ import annotations

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
