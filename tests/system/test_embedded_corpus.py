"""From nothing to a model that translates, through the command line alone, on the embedded corpus."""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import rela
from rela.cli import main
from rela.evaluation.link_files import read_links
from rela.model.folder import load_weights

CONFIG = """
data:
  root: corpus
  train: [{source: train.en, target: train.de}]
  valid: {source: valid.en, target: valid.de}
  test: {source: test.en, target: test.de}
  directory: ids
  vocabulary_size: 1000
model: {width: 96, heads: 4, encoder_layers: 1, decoder_layers: 1, feed_forward: 192, dropout: 0.0,
        attention_dropout: 0.0, max_length: 128}
train: {directory: run, steps: 350, tokens: 1200, warmup: 100, cooldown: 175, centring: 175, learning_rate: 0.9,
        log_every: 50, validate_every: 100, save_every: 25, keep_last: 3, average_last: 3, tensorboard: false,
        device: cpu}
"""


@dataclass(frozen=True)
class Workshop:
    """A folder in which commands are run."""

    folder: Path

    def rela(self, *arguments: object) -> str:
        """The output of a command that must succeed."""
        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(written),
            warnings.catch_warnings(),  # main has its own way to show them
            pytest.raises(SystemExit) as exit,
        ):
            main([str(argument) for argument in arguments])
        assert not exit.value.code
        written.flush()
        return written.buffer.getvalue().decode("utf-8")

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Workshop:
    """A folder with the corpus, the prepared ids and a model trained for 350 steps."""
    workshop = Workshop(tmp_path_factory.mktemp("workshop"))
    (workshop.folder / "toy.yaml").write_text(CONFIG, encoding="utf-8")
    assert "12,000 training" in workshop.rela(
        "data", "toy", "--out", "corpus", "--train", 12_000, "--valid", 100, "--test", 120
    )
    assert "vocabulary of 1000" in workshop.rela("prepare", "toy.yaml")
    assert workshop.rela("train", "toy.yaml").strip() == os.path.join("run", "model")
    workshop.rela("translate", "run/model", "corpus/test.en", "--out", "output.de")
    return workshop


def test_the_corpus_is_parallel_text_with_links(trained):
    for split, count in (("train", 12_000), ("valid", 100), ("test", 120)):
        sources, targets = trained.lines(f"corpus/{split}.en"), trained.lines(f"corpus/{split}.de")
        assert len(sources) == len(targets) == len(trained.lines(f"corpus/{split}.align")) == count
    assert not set(trained.lines("corpus/test.en")) & set(trained.lines("corpus/train.en"))


def test_what_is_prepared_or_trained_is_not_done_again(trained):
    assert "found complete" in trained.rela("prepare", "toy.yaml")
    log = trained.lines("run/log.jsonl")
    assert trained.rela("train", "toy.yaml").strip() == os.path.join("run", "model")
    assert trained.lines("run/log.jsonl") == log


def test_training_and_validation_losses_fall(trained):
    rows = [json.loads(line) for line in trained.lines("run/log.jsonl")]
    for event, steps in (("train", list(range(50, 351, 50))), ("valid", [100, 200, 300, 350])):
        found = [row for row in rows if row["event"] == event]
        assert [row["step"] for row in found] == steps
        losses = [row["loss"] for row in found]
        assert losses == sorted(losses, reverse=True)
    # 1.0 was measured; guessing by word frequency alone costs 5.7 nats a subword here.
    assert rows[-1]["nll"] < 1.9


def test_the_model_translates_held_out_sentences(trained):
    """40 BLEU were measured after these 350 steps, and next to none for the same translations beside other sources."""
    scores = json.loads(trained.rela("evaluate", "output.de", "corpus/test.de", "--format", "json"))
    bleu, chrf, tokenised = (score["value"] for score in scores)
    assert bleu > 20
    assert chrf > 40
    assert tokenised == pytest.approx(bleu, abs=0.5), "the corpus is tokenised already"
    shuffled = trained.folder / "shuffled.de"
    shuffled.write_text(
        "\n".join(trained.lines("output.de")[1:] + trained.lines("output.de")[:1]) + "\n", encoding="utf-8"
    )
    assert (
        json.loads(trained.rela("evaluate", "shuffled.de", "corpus/test.de", "--format", "json"))[0]["value"] < bleu / 4
    )


def test_translations_do_not_depend_on_the_batch(trained):
    few = "\n".join(trained.lines("corpus/test.en")[:25]) + "\n"
    (trained.folder / "few.en").write_text(few, encoding="utf-8")
    alone = trained.rela("translate", "run/model", "few.en", "--batch-tokens", 1, "--format", "jsonl")
    assert alone == trained.rela("translate", "run/model", "few.en", "--batch-tokens", 1_000_000, "--format", "jsonl")
    assert [json.loads(line)["translation"] for line in alone.splitlines()] == trained.lines("output.de")[:25]


def test_the_average_of_the_last_checkpoints_is_the_finished_model(trained):
    checkpoints = sorted((trained.folder / "run" / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["step-0000300", "step-0000325", "step-0000350"]
    trained.rela("average", *checkpoints, "--out", "averaged")
    one, two = (load_weights(trained.folder / name / "model.safetensors") for name in ("averaged", "run/model"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    last = load_weights(checkpoints[-1] / "model.safetensors")
    assert any(not torch.equal(last[name], two[name]) for name in two)


def test_true_translations_are_more_probable_than_others(trained):
    def log_probs(target: str) -> list[float]:
        return [float(line) for line in trained.rela("score", "run/model", "corpus/test.en", target).splitlines()]

    targets = trained.lines("corpus/test.de")
    (trained.folder / "wrong.de").write_text("\n".join(targets[1:] + targets[:1]) + "\n", encoding="utf-8")
    true, wrong = log_probs("corpus/test.de"), log_probs("wrong.de")
    assert sum(a > b for a, b in zip(true, wrong, strict=True)) > 0.9 * len(targets)


def test_search_and_score_agree(trained):
    rows = [
        json.loads(line)
        for line in trained.rela("translate", "run/model", "corpus/test.en", "--format", "jsonl").splitlines()
    ]
    assert [row["translation"] for row in rows] == trained.lines("output.de")
    # After so few steps no words at all may be the most probable translation, and an empty line has no score.
    said = [row for row in rows if row["translation"]]
    assert len(said) > 0.9 * len(rows)
    for name, key in (("said.en", "source"), ("said.de", "translation")):
        (trained.folder / name).write_text("".join(row[key] + "\n" for row in said), encoding="utf-8")
    scored = [float(line) for line in trained.rela("score", "run/model", "said.en", "said.de").splitlines()]
    close = [abs(row["log_prob"] - value) < 1e-3 for row, value in zip(said, scored, strict=True)]
    assert sum(close) > 0.9 * len(close), "the rest are translations whose text has another segmentation"


def test_information_about_the_model(trained):
    output = trained.rela("info", "run/model")
    assert "encoder rela-g, decoder rela-g, cross rela-g" in output
    parameters = sum(tensor.numel() for tensor in load_weights(trained.folder / "run/model/model.safetensors").values())
    assert f"{parameters:,}" in output.splitlines()[-1]


def test_links_come_with_the_translations(trained):
    rows = [
        line.split("\t")
        for line in trained.rela("translate", "run/model", "corpus/test.en", "--alignments").splitlines()
    ]
    assert [text for text, _ in rows] == trained.lines("output.de")
    (trained.folder / "output.align").write_text("\n".join(links for _, links in rows) + "\n", encoding="utf-8")
    assert len(list(read_links(trained.folder / "output.align"))) == 120
    assert sum(bool(links) for _, links in rows) > 100


def test_the_python_interface_says_what_the_command_line_says(trained):
    model = rela.load(trained.folder / "run" / "model")
    sources = trained.lines("corpus/test.en")[:12]
    assert model.translate(sources) == trained.lines("output.de")[:12]
    assert model.score(sources[:1], trained.lines("corpus/test.de")[:1])[0].log_prob < 0
