"""Several validation sets, and the best model by loss or by BLEU of one of them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from rela.config import CorpusConfig, NamedCorpusConfig
from rela.data.prepare import prepare
from rela.toy import split, write_corpus
from rela.training.trainer import Trainer, train
from tests.training.training_files import checkpoint, events, final_bytes, with_train


@pytest.fixture
def two_sets(make_config, tmp_path):
    """A maker of configurations with a second validation set, news, that differs from the first in one pair."""
    train_pairs, valid, other = split(300, 5, 1, seed=5)
    write_corpus(tmp_path / "text", {"train": train_pairs, "valid": valid, "news": [*valid[:-1], other[0]]})
    prepared = None

    def make(run: str = "run", **options):
        nonlocal prepared
        config = make_config(run, **options)
        data = dataclasses.replace(
            config.data,
            root=str(tmp_path / "text"),
            directory=str(tmp_path / "prepared"),
            train=(CorpusConfig("train.en", "train.de"),),
            more_valid=(NamedCorpusConfig("news", "news.en", "news.de"),),
        )
        if prepared is None:
            prepared = prepare(data, threads=1)
            assert prepared.splits["valid.news"].pairs == 5
        return dataclasses.replace(config, data=data)

    return make


def test_each_set_is_logged_under_its_name_and_one_chooses_the_best(two_sets):
    config = two_sets(steps=6, save_every=2, validate_every=2, bleu_every=6, best_on="news")
    train(config, quiet=True)
    first, news = events(config, "valid"), events(config, "valid.news")
    assert [row["step"] for row in first] == [row["step"] for row in news] == [2, 4, 6]
    assert all(a["loss"] != b["loss"] for a, b in zip(first, news, strict=True))
    assert [row["step"] for row in events(config, "bleu.news")] == [6]
    losses = [row["loss"] for row in news]
    best = Path(config.train.directory) / "best" / "model.safetensors"
    assert (
        best.read_bytes()
        == (checkpoint(config, 2 * (1 + losses.index(min(losses)))) / "model.safetensors").read_bytes()
    )
    other = with_train(config, best_on="valid", directory=f"{config.train.directory}-valid")
    train(other, quiet=True)
    assert final_bytes(other) == final_bytes(config), "validation changes no weight"


def test_best_by_bleu_keeps_the_model_of_the_highest_bleu_and_resumes(two_sets, monkeypatch):
    """BLEU of untrained models is 0 or close to it: here it is what the test says."""
    scores = {2: 7.0, 4: 9.0, 6: 9.0, 8: 3.0}

    class Scored(Trainer):
        def bleu_scores(self):
            real = super().bleu_scores()
            assert real.keys() == {"valid", "news"}
            return {name: dataclasses.replace(score, value=scores[self.state.step]) for name, score in real.items()}

    monkeypatch.setattr("rela.training.trainer.Trainer", Scored)
    config = two_sets(steps=6, save_every=2, keep_last=4, bleu_every=2, best_by="bleu", patience=2)
    best = Path(config.train.directory) / "best" / "model.safetensors"
    train(config, quiet=True)
    assert best.read_bytes() == (checkpoint(config, 4) / "model.safetensors").read_bytes(), "the first of equals"
    train(with_train(config, steps=20), quiet=True)
    assert events(config)[-1]["step"] == 8, "two validations without a better one"
    assert best.read_bytes() == (checkpoint(config, 4) / "model.safetensors").read_bytes()


REFUSED = {
    "best_on is 'other'": {"best_on": "other"},
    "bleu_every 0": {"best_by": "bleu"},
    "cosine": {"schedule": "cosine", "cooldown": 3, "warmup": 2},
    "train.warmup is 50; wanted below train.steps, 12": {"schedule": "cosine"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_settings_without_effect_are_refused(make_config, said):
    with pytest.raises(ValueError, match=said):
        train(make_config(**REFUSED[said]), quiet=True)


def test_the_gradient_norm_is_logged_before_it_is_clipped(make_config):
    norms = {}
    for clip in (0.0, 1e-3):
        config = make_config(f"clip{clip}", steps=2, clip_norm=clip)
        train(config, quiet=True)
        norms[clip] = [row["gradient_norm"] for row in events(config)]
    assert norms[0.0][0] == pytest.approx(norms[1e-3][0], rel=1e-6)
    assert all(0.1 < norm < math.inf for norm in norms[1e-3]), "far above what is clipped to"
