"""The demo end to end with tiny models: what it prints, writes and reuses."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex

import pytest
import torch

from rela import demo
from rela.cli import main
from rela.config import load_config


def test_the_config_file_holds_the_demos_settings():
    from_file, ours = load_config("configs/demo.yaml"), demo.demo_config()
    assert from_file.model == ours.model
    assert from_file.decode == ours.decode
    assert dataclasses.replace(from_file.train, directory=ours.train.directory) == ours.train
    folders = {"root": ours.data.root, "directory": ours.data.directory}
    assert dataclasses.replace(from_file.data, **folders) == ours.data


@pytest.fixture
def small(monkeypatch):
    """The demo with a small corpus, a narrow model and few steps."""
    full = demo.demo_config

    def config(directory: str = "demo", kind: str = "rela-g"):
        original = full(directory, kind)
        return dataclasses.replace(
            original,
            data=dataclasses.replace(original.data, vocabulary_size=400),
            model=dataclasses.replace(
                original.model, width=24, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=32
            ),
            train=dataclasses.replace(
                original.train, steps=12, warmup=6, cooldown=4, centring=6, tokens=200, validate_every=6
            ),
        )

    monkeypatch.setattr(demo, "demo_config", config)
    monkeypatch.setattr(demo, "TRAIN", 300)
    monkeypatch.setattr(demo, "VALID", 9)
    monkeypatch.setattr(demo, "TEST", 13)


def test_demo_prints_a_table_draws_links_writes_a_report_and_reuses_its_models(small, tmp_path, capsys):
    said: list[str] = []
    first = demo.demo(tmp_path / "demo", said.append)
    printed = capsys.readouterr().out
    for words in ("BLEU", "AER, best head", "sparsity rate, cross", "null rate, shuffled pairs", "AUROC of null rate"):
        assert words in printed
    assert printed.count("→") == 5
    page = (tmp_path / "demo/report/index.html").read_text("utf-8")
    for figure in ("null-rate", "noise"):
        (words,) = (
            shlex.split(html.unescape(text)) for text in re.findall(f"<code>(rela plot {figure} .*?)</code>", page)
        )
        with pytest.raises(SystemExit):
            main([*words[1:-1], str(tmp_path / words[-1])])
        assert (tmp_path / f"{words[-1]}.svg").read_bytes() == (tmp_path / f"demo/report/{words[-1]}.svg").read_bytes()
    capsys.readouterr()
    assert json.loads((tmp_path / "demo/figures.json").read_text("utf-8")) == json.loads(json.dumps(first))
    trained = {path: path.stat().st_mtime_ns for path in tmp_path.glob("demo/*/model/model.safetensors")}
    assert len(trained) == 2
    # A second run begins with these; what it then measures, it measures of the same models on the same pairs.
    lines = (tmp_path / "demo/corpus/test.en").read_text("utf-8").splitlines()
    assert [pair.source for pair in demo.make_corpus(tmp_path / "demo", said.append)] == lines
    demo.train_together([demo.demo_config(str(tmp_path / "demo"), kind) for kind in demo.KINDS], lambda *_: None)
    assert {path: path.stat().st_mtime_ns for path in trained} == trained


def test_a_training_that_fails_is_said_in_one_line(tmp_path):
    config = demo.demo_config(str(tmp_path))  # nothing was prepared there
    with pytest.raises(RuntimeError, match="training rela-g failed: ") as failure:
        demo.train_together([config], lambda *_: None)
    assert "\n" not in str(failure.value)


def test_drawn_matrix_shows_zero_as_a_dot_and_the_largest_as_a_full_block():
    drawn = demo.draw_matrix(torch.tensor([[0.0, 2.0], [0.0, 0.0]]), ("a", "b"), ("x", "yy"))
    header, first, second = drawn.splitlines()
    assert header.split() == ["a", "b"]
    assert first.split() == ["x", "·", "███"]
    assert second.split() == ["yy", "·", "·"]


def test_an_empty_translation_has_a_matrix_without_rows():
    assert demo.draw_matrix(torch.zeros(0, 2), ("a", "b"), ()).split() == ["a", "b"]
