"""A tiny prepared corpus that all training tests share, and configurations of tiny models on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rela.config import Config, DataConfig, ModelConfig, TrainConfig, save_config
from rela.data.prepare import prepare
from tests.forking import Forked
from tests.tiny_models import toy_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> DataConfig:
    """600 pairs of the embedded corpus, prepared."""
    config = toy_corpus(tmp_path_factory.mktemp("corpus"), 600, 30, vocabulary_size=300)
    prepare(config, threads=1)
    return config


@pytest.fixture
def make_config(corpus, tmp_path) -> Callable[..., Config]:
    """A configuration of a tiny model; keywords are fields of `train`, or of `model` with a prefix model_."""

    def make(run: str = "run", **options) -> Config:
        shape = {
            "width": 16,
            "heads": 2,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "feed_forward": 24,
            "max_length": 128,
        }
        shape |= {name.removeprefix("model_"): options.pop(name) for name in list(options) if name.startswith("model_")}
        settings = {
            "directory": str(tmp_path / run),
            "steps": 12,
            "tokens": 300,
            "warmup": 50,
            "log_every": 1,
            "validate_every": 0,
            "save_every": 4,
            "keep_last": 3,
            "average_last": 2,
            "tensorboard": False,
            "device": "cpu",
        }
        return Config(corpus, ModelConfig(**shape), TrainConfig(**{**settings, **options}))

    return make


@pytest.fixture
def command(tmp_path) -> Callable[..., list[str]]:
    """The command line that trains a configuration."""

    def make(config: Config, *overrides: str, processes: int = 1) -> list[str]:
        path = tmp_path / f"{Path(config.train.directory).name}.yaml"
        save_config(config, path)
        launch = (
            ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
        )
        settings = [word for override in overrides for word in ("--set", override)]
        return [sys.executable, *launch, "-m", "rela", "train", str(path), "--quiet", *settings]

    return make


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def run(command, environment) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Train through the command line, to the end; one process is a fork of this one."""

    def start(config: Config, *overrides: str, processes: int = 1, **options) -> subprocess.CompletedProcess[str]:
        line = command(config, *overrides, processes=processes)
        if processes == 1:
            process = Forked(line[3:], **options)
            output, errors = process.communicate()
            return subprocess.CompletedProcess(line, process.returncode or 0, output, errors)
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, **options)

    return start
