"""A campaign of commands that are started three times at once in one folder: one output, whole, whoever wrote it."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from rela.toy import generate, write_corpus
from tests.forking import Forked
from tests.tiny_models import tiny_folder

pytestmark = pytest.mark.campaign

SEED = int(os.environ.get("RELA_SEED", "1"))
COMMANDS = {
    "translate": "translate model text.en --beam 1 --device cpu --out out",
    "translate --resume": "translate model text.en --beam 1 --device cpu --resume --out out",
    "align": "align model text.en text.de --layer 2 --device cpu --out out",
    "check": "check model text.en text.de --device cpu --out out",
    "filter": "filter model text.en text.de --keep 0.5 --text --device cpu --out out",
    "average": "average model other --out out",
    "data toy": "data toy --train 300 --valid 5 --test 5 --force --out out",
    "prepare": "prepare config.yaml --set data.directory=out",
    "train": "train config.yaml --set train.directory=out",
    "check --calibrate": "check model text.en text.de --calibrate --pairs 40 --device cpu",
    "fit-aligner": "fit-aligner model text.en text.de --device cpu",
}
CONFIG = """
data:
  train: [{source: text.en, target: text.de}]
  valid: {source: text.en, target: text.de}
  directory: prepared
  vocabulary_size: 300
model: {width: 24, heads: 2, encoder_layers: 1, decoder_layers: 1, feed_forward: 32}
train:
  {tokens: 500, warmup: 2, steps: 20, save_every: 5, validate_every: 10, device: cpu,
    compile: "off", tensorboard: false}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    tiny_folder(folder / "model")
    tiny_folder(folder / "other", seed=2)
    write_corpus(folder, {"text": generate(200, seed=5)})
    (folder / "config.yaml").write_text(CONFIG)
    assert together(["prepare", str(folder / "config.yaml"), "--set", f"data.root={folder}"], folder, [0.0])[0] == 0
    return folder


def together(words: list[str], folder: Path, waits: list[float]) -> list[int]:
    """The exit codes of a command that is started again and again, after some seconds each time."""
    started = []
    for seconds in waits:
        started.append(Forked(words, preexec_fn=lambda: os.chdir(folder)))
        time.sleep(seconds)
    while any(process.poll() is None for process in started):
        time.sleep(0.005)
    for process in started:
        assert "Traceback" not in os.pread(process.stderr, 1 << 20, 0).decode()
        os.close(process.stdout)
        os.close(process.stderr)
    return [process.poll() for process in started]


def contents(folder: Path) -> dict[str, bytes]:
    """All files, but for the log of a run, which has times in it."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if path.name != "log.jsonl"}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_output_is_whole(folder, command, tmp_path):
    generator = random.Random(SEED)
    words = COMMANDS[command].split(" ")
    alone, shared = (Path(shutil.copytree(folder, tmp_path / name)) for name in ("alone", "shared"))
    assert together(words, alone, [0.0]) == [0]
    wanted = contents(alone)
    for longest in (0.0, 0.05, 0.5):
        shutil.rmtree(shared)
        shutil.copytree(folder, shared)
        codes = together(words, shared, [generator.uniform(0, longest) for _ in range(3)])
        assert set(codes) <= {0, 2}
        assert 0 in codes
        assert contents(shared) == wanted
