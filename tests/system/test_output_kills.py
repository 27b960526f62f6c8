"""A campaign of SIGKILLs on commands with --out, and on `rela check --calibrate`: nothing half-written or left over.

Half of the kills come at a file-system event of the command, half at a moment, both drawn at random. RELA_KILLS sets
how many there are for each of the commands, RELA_SEED which.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rela.filtering.detector import DETECTOR
from rela.toy import generate, write_corpus
from tests.killing import Killer, killer
from tests.tiny_models import tiny_folder

pytestmark = pytest.mark.campaign

KILLS = int(os.environ.get("RELA_KILLS", "40"))
SEED = int(os.environ.get("RELA_SEED", "1"))
NEEDED = (
    "rela.cli",
    "rela.decoding.translate",
    "rela.alignment.corpus",
    "rela.filtering.filter",
    "rela.filtering.check",
    "rela.report.filter_page",
)
COMMANDS = {
    "translate": "translate model text.en --beam 1 --device cpu --out out",
    "align": "align model text.en text.de --layer 2 --device cpu --out out",
    "filter": "filter model text.en text.de --keep 0.5 --device cpu --out out",
    "translate --resume": "translate model text.en --beam 1 --device cpu --resume --out out",
    "check": "check model text.en text.de --device cpu --format jsonl --out out --page out.html",
    "check --calibrate": "check calibrated text.en text.de --pairs 100 --calibrate --device cpu",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    tiny_folder(folder / "model")
    tiny_folder(folder / "calibrated")
    write_corpus(folder, {"text": generate(200, seed=5)})
    return folder


@pytest.fixture(scope="module")
def process(folder) -> Iterator[Killer]:
    with killer(folder, *NEEDED) as started:
        yield started


def outputs(folder: Path) -> dict[str, bytes]:
    """What the command wrote by name; what another run goes on with is apart."""
    files = [*folder.glob("out*"), folder / "calibrated" / DETECTOR]
    found = [path for path in files if path.is_file() and ".partial" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_command_leaves_whole_files_and_the_next_one_clears_up(process, folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    words = COMMANDS[command].split(" ")
    whole = process.rela(*words)
    assert (whole.killed, whole.status) == (False, 0), whole.errors
    wanted, there = outputs(folder), names(folder)
    assert wanted
    generator, killed = random.Random(SEED), 0
    for _ in range(KILLS):
        for name in wanted:
            (folder / name).unlink(missing_ok=True)
        if generator.random() < 0.5:
            ending = process.rela(*words, event=generator.randint(1, max(whole.events, 1)))
        else:
            ending = process.rela(*words, seconds=generator.uniform(0, whole.seconds))
        killed += ending.killed
        found = outputs(folder)
        assert found.items() <= wanted.items(), "a file is whole or not there"
        again = process.rela(*words)
        assert (again.killed, again.status) == (False, 0), again.errors
        assert outputs(folder) == wanted
        assert names(folder) == there, "no leftovers"
    assert killed >= KILLS // 3
    for name in wanted:
        (folder / name).unlink()
    print(f"\nrela {command}: {killed} kills (seed {SEED})")
