"""What is written reads back equal, overrides win, and a file is written whole."""

from __future__ import annotations

import math
import re
import time
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
    parse_yaml,
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


def bomb(depth: int) -> str:
    """Aliases that stand for 9^depth values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, depth):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("train: {steps: 3, steps: 4}", "line 1: the key 'steps' occurs twice"),
        ("train:\n  steps: 3\ndata: {}\ntrain:\n  tokens: 5", "line 4: the key 'train' occurs twice"),
        ('data: {"seed": 1, seed: 2}', "the key 'seed' occurs twice"),
        (bomb(9), "aliases stand for over 20,000 values"),
        (f"train: {{steps: {'[' * 1500}", "nested too deeply"),
        ("train: {steps: 010}", "train: steps is '010'; wanted a whole number"),  # eight in YAML 1.1
        ("train: {steps: 1:30}", "train: steps is '1:30'; wanted a whole number"),  # ninety
        ("train: {learning_rate: 1:30.5}", "train: learning_rate is '1:30.5'; wanted a number"),
        ("a: &a [*a]", "an alias that stands for itself"),
        ("a: &a {b: *a}", "an alias that stands for itself"),
        ("a: !!int ''", "not valid YAML"),
        ("a: !!bool maybe", "not valid YAML"),
        ("a: !!timestamp soon", "not valid YAML"),
        ("a: !!float ''", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
        ("a: b\n--- \nc: d", "not valid YAML"),
    ],
)
def test_what_yaml_allows_and_a_configuration_does_not_is_one_line(tmp_path, text, named):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ValueError, match=re.escape(named)) as caught:
        load_config(path)
    assert time.process_time() - began < 5
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


def test_numbers_are_decimal_and_dates_are_text():
    text = "[0, -7, +12, 1_000, 0x1F, 1.5, -.5, 2., 1.5e3, 1.5E-3, .inf, 010, 1:30, 1:30.5, 2024-01-02, 0b11, 0o17]"
    found = parse_yaml(text, "text")
    assert found[:11] == [0, -7, 12, 1000, 31, 1.5, -0.5, 2.0, 1500.0, 0.0015, math.inf]
    assert found[11:] == ["010", "1:30", "1:30.5", "2024-01-02", "0b11", "0o17"]


def test_merged_keys_may_be_set_again(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("train: &base {steps: 3, tokens: 7}\n")
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", "here")["b"] == {"x": 3, "y": 2}
    assert load_config(path).train.steps == 3


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_file_without_end_is_no_configuration(device):
    with pytest.raises(ValueError, match=f"{device} is over 256 KiB; wanted a configuration"):
        load_config(device)


def test_a_large_value_is_shown_in_part(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"train: {{steps: {'x' * 100_000}}}")
    with pytest.raises(ValueError, match="wanted a whole number") as caught:
        load_config(path)
    assert len(str(caught.value)) < 500
