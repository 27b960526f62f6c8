"""A model that has learnt something, for the long tests of exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from rela.config import Config, ModelConfig, TrainConfig
from rela.data.prepare import prepare
from rela.training.trainer import train
from tests.tiny_models import toy_corpus


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory) -> Path:
    """Some minutes of training on the embedded corpus."""
    folder = tmp_path_factory.mktemp("trained")
    data = toy_corpus(folder, 10_000, vocabulary_size=1000)
    prepare(data, threads=1)
    shape = ModelConfig(width=128, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=256, max_length=256)
    settings = TrainConfig(
        directory=str(folder / "run"),
        steps=400,
        tokens=1500,
        warmup=150,
        cooldown=200,
        save_every=400,
        keep_last=1,
        average_last=1,
        validate_every=0,
        tensorboard=False,
        device="cpu",
    )
    return train(Config(data, shape, settings), quiet=True)
