"""A campaign of commands whose disk is full: one line that names the file, the old output whole, and no leftovers.

A limit on the size of files stands for the disk: it fails at the same calls, and needs no file system of its own.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rela.toy import generate, write_corpus
from tests.forking import Forked
from tests.tiny_models import tiny_folder

pytestmark = pytest.mark.campaign

COMMANDS = {
    "translate": "translate model text.en --beam 1 --device cpu --out out",
    "translate --resume": "translate model text.en --beam 1 --device cpu --resume --out out",
    "align": "align model text.en text.de --layer 2 --device cpu --out out",
    "check": "check model text.en text.de --device cpu --out out",
    "filter": "filter model text.en text.de --keep 0.5 --text --device cpu --out out",
    "average": "average model other --out out",
    "data toy": "data toy --train 300 --valid 5 --test 5 --out out",
    "explore": "explore model --sentence dog --translation Hund --device cpu --out out.html",
    "convert": "convert model --to hf --out out",
}
LIMITS = (3_000, 20_000, 60_000)
"""Bytes of a file; room enough for the message, and less than some file of each command."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    tiny_folder(folder / "model")
    tiny_folder(folder / "other", seed=2)
    write_corpus(folder, {"text": generate(400, seed=5)})
    return folder


def finish(words: Sequence[str], first: Callable[[], None] | None = None) -> tuple[int, str]:
    """The exit code of a command and what it said."""
    process = Forked(words, preexec_fn=first)
    while (code := process.poll()) is None:
        time.sleep(0.005)
    said = os.pread(process.stderr, 1 << 20, 0).decode()
    os.close(process.stdout)
    os.close(process.stderr)
    return code, said


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_lost(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    words, before = COMMANDS[command].split(" "), contents(folder)
    assert finish(words)[0] == 0
    wanted, failed = contents(folder), 0
    for limit in LIMITS:
        for name in wanted.keys() - before.keys():
            (folder / name).unlink()
        code, said = finish(words, lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert code in (0, 2)
        assert "Traceback" not in said
        if code == 0:
            continue
        failed += 1
        assert "File too large" in said
        assert "out" in said.splitlines()[-1], said
        found = contents(folder)
        assert not [name for name in found if Path(name).name.startswith(".")], "no leftovers"
        assert {name: found[name] for name in before} == before
        assert finish(words)[0] == 0
        assert contents(folder) == wanted, "the next run gives the output of one that was never disturbed"
    assert failed
    for name in wanted.keys() - before.keys():
        (folder / name).unlink()
