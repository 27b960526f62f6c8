"""Sentences and untrained models for tests of the command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

from rela.config import Config, DecodeConfig, ModelConfig
from rela.data.subwords import train_subwords
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from rela.toy import generate

PAIRS = list(generate(40, seed=2))
SOURCES, TARGETS = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]


def make_model(folder: Path, size: int = 300, seed: int = 0, **shape) -> Path:
    torch.manual_seed(seed)
    subwords = train_subwords([*SOURCES, *TARGETS] * 3, size)
    config = Config(
        model=ModelConfig(
            vocabulary_size=size,
            width=16,
            heads=2,
            encoder_layers=1,
            decoder_layers=2,
            feed_forward=24,
            **{"max_length": 90, **shape},
        ),
        decode=DecodeConfig(max_length_ratio=0.5, max_length_extra=3),
    )
    Translator(Transformer(config.model), subwords, config, "cpu").save(folder)
    return folder


def shell(command: list[str], **options) -> subprocess.CompletedProcess:
    """Run a program on the CPU, with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, env=environment, timeout=120, **options)
