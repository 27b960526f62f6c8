"""A campaign of SIGKILLs on `rela prepare`, `train` and `average`: nothing is lost or left, results are identical.

Half of the kills come at a file-system event of the command, half at a moment, both drawn at random. RELA_KILLS sets
how many there are for each of the four commands, RELA_SEED which.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rela.config import Config, DataConfig, ModelConfig, TrainConfig, save_config
from rela.data.shards import PreparedCorpus
from rela.model.folder import WEIGHTS, load_folder
from tests.killing import Ending, Killer, killer
from tests.tiny_models import toy_corpus

pytestmark = pytest.mark.campaign

KILLS = int(os.environ.get("RELA_KILLS", "40"))
SEED = int(os.environ.get("RELA_SEED", "1"))
NEEDED = ("rela.cli", "rela.training.trainer", "rela.data.prepare", "rela.model.folder", "rela.commands.learn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Text and the configuration of a tiny run over it."""
    folder = tmp_path_factory.mktemp("kills")
    data = toy_corpus(folder, 200, 20, vocabulary_size=250, shard_pairs=90)
    save_config(configuration(folder, data), folder / "config.yaml")
    return folder


def configuration(folder: Path, data: DataConfig) -> Config:
    model = ModelConfig(width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=24, max_length=128)
    train = TrainConfig(
        directory=str(folder / "run"),
        steps=30,
        tokens=200,
        warmup=50,
        log_every=1,
        validate_every=3,
        save_every=2,
        keep_last=3,
        average_last=2,
        tensorboard=False,
        device="cpu",
    )
    return Config(data, model, train)


@pytest.fixture(scope="module")
def process(folder) -> Iterator[Killer]:
    with killer(folder, *NEEDED) as started:
        yield started


@pytest.fixture
def kill(process) -> Callable[..., Ending]:
    """Run a command until it ends, or is killed at a random event or moment of what it did when it was not killed."""
    generator = random.Random(SEED)

    def run(whole: Ending, *command: object) -> Ending:
        if generator.random() < 0.5:
            return process.rela(*command, event=generator.randint(1, whole.events))
        return process.rela(*command, seconds=generator.uniform(0, whole.seconds))

    return run


def finished(process: Killer, *command: object) -> Ending:
    ending = process.rela(*command)
    assert (ending.killed, ending.status) == (False, 0), ending.errors
    return ending


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a prepared corpus by their names, whatever their folder is called."""
    corpus = PreparedCorpus.open(directory, "train")
    return {path.name: path.read_bytes() for path in (*corpus.folder.iterdir(), directory / "subwords.model")}


def hidden(directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob(".*")]


def show(command: str, kills: int) -> None:
    print(f"\nrela {command}: {kills} kills (seed {SEED})")


def test_preparing(folder, process, kill):
    """From nothing: the next run makes what an undisturbed one makes."""
    command, directory = ("prepare", folder / "config.yaml"), folder / "prepared"
    whole = finished(process, *command)
    wanted = contents(directory)
    kills = 0
    while kills < KILLS:
        shutil.rmtree(directory)
        kills += kill(whole, *command).killed
        finished(process, *command)
        assert contents(directory) == wanted
        assert not hidden(directory)
        assert {path.name for path in directory.iterdir()} == {"ids", "meta.json", "subwords.model"}
    show("prepare", kills)


def test_preparing_by_force(folder, process, kill):
    """Over an old corpus: that one or the new one is whole, and the next run makes the new one."""
    directory = folder / "prepared"
    old = ("prepare", folder / "config.yaml", "--force")
    new = (*old, "--set", "data.seed=2")
    finished(process, *new)
    wanted = contents(directory)
    finished(process, *old)
    before = contents(directory)
    assert before != wanted
    shutil.rmtree(folder / "before", ignore_errors=True)
    shutil.copytree(directory, folder / "before")
    whole = finished(process, *new)
    kills, found = 0, {"old": 0, "new": 0}
    while kills < KILLS:
        shutil.rmtree(directory)
        shutil.copytree(folder / "before", directory)
        ending = kill(whole, *new)
        kills += ending.killed
        corpus = PreparedCorpus.open(directory, "train")
        pairs = [corpus.pair(number) for number in range(len(corpus))]  # each shard is compared with its checksum
        assert len(pairs) == 200
        left = {path.name: path.read_bytes() for path in corpus.folder.iterdir()}
        found["new" if left == {name: wanted[name] for name in left} else "old"] += ending.killed
        assert left in ({name: wanted[name] for name in left}, {name: before[name] for name in left})
        del corpus, pairs
        finished(process, *new)
        assert contents(directory) == wanted
        assert not hidden(directory)
        assert len(list(directory.iterdir())) == 3
    show(f"prepare --force ({found['old']} left the old corpus, {found['new']} the new one)", kills)
    finished(process, *old)


def test_killed_training_ends_with_the_same_weights(folder, process, kill):
    """A run that is killed and resumed until it ends has the weights and optimisers of one that never was."""
    finished(process, "prepare", folder / "config.yaml", "--force")
    command = ("train", folder / "config.yaml", "--quiet")
    straight, killed = folder / "straight", folder / "killed"
    whole = finished(process, *command, "--set", f"train.directory={straight}")
    wanted = weights(straight)
    kills, runs = 0, 0
    while kills < KILLS:
        shutil.rmtree(killed, ignore_errors=True)
        runs += 1
        while True:
            ending = kill(whole, *command, "--set", f"train.directory={killed}")
            if not ending.killed:
                assert ending.status == 0, ending.errors
                break
            kills += 1
            for best in killed.glob("best"):
                load_folder(best)
        assert weights(killed) == wanted
        assert not hidden(killed)
    show(f"train ({runs} runs)", kills)


def weights(run: Path) -> dict[str, bytes]:
    files = [*run.glob("*/model.safetensors"), *run.glob("checkpoints/step-*/*.safetensors")]
    assert len(files) == 7, "the finished and the best model, three checkpoints, two optimisers"
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def test_averaging(folder, process, kill):
    """Over an existing folder: the old or the new model is there, and the next run makes the new one."""
    if not (folder / "straight").exists():
        finished(process, "prepare", folder / "config.yaml", "--force")
        finished(process, "train", folder / "config.yaml", "--quiet", "--set", f"train.directory={folder / 'straight'}")
    checkpoints = sorted((folder / "straight" / "checkpoints").iterdir())
    out = folder / "averages" / "model"
    out.parent.mkdir()
    command = ("average", *checkpoints, "--out", out)
    whole = finished(process, *command)
    wanted = (out / WEIGHTS).read_bytes()
    old = (checkpoints[0] / WEIGHTS).read_bytes()
    kills, found = 0, {"old": 0, "new": 0}
    while kills < KILLS:
        finished(process, "average", checkpoints[0], "--out", out)
        assert (out / WEIGHTS).read_bytes() == old
        ending = kill(whole, *command)
        kills += ending.killed
        load_folder(out)
        left = (out / WEIGHTS).read_bytes()
        assert left in (old, wanted)
        found["old" if left == old else "new"] += ending.killed
        finished(process, *command)
        assert (out / WEIGHTS).read_bytes() == wanted
        assert not hidden(out.parent)
    show(f"average ({found['old']} left the old model, {found['new']} the new one)", kills)
