"""What is written reads back equal, overrides win, and a file is written whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rela.config import (
    Config,
    CorpusConfig,
    DataConfig,
    ModelConfig,
    TrainConfig,
    load_config,
    save_config,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


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


def test_overrides_win_and_take_yaml_values(tmp_path):
    path = write(tmp_path, "train: {steps: 7}\nmodel: {width: 64}")
    config = load_config(
        path,
        [
            "train.steps=9",
            "train.compile=off",
            "model.threshold=learned",
            "decode.beam=1",
            "data.train=[{source: a, target: b}]",
            "model.norm_first=true",
        ],
    )
    assert (config.train.steps, config.train.compile, config.decode.beam) == (9, "off", 1)
    assert (config.model.width, config.model.threshold, config.model.norm_first) == (64, "learned", True)
    assert config.data.train == (CorpusConfig("a", "b"),)


def test_a_config_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "latin1.yaml"
    path.write_bytes("data: {root: Müll}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin1\.yaml is not valid YAML: byte 14 is not UTF-8"):
        load_config(path)


def test_saving_leaves_no_other_file(tmp_path):
    save_config(Config(), tmp_path / "config.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))["train"]["steps"] == 100_000
