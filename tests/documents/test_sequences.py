"""The pages' commands, one after another in one folder, as a reader types them; sizes alone are smaller.

`make test` runs the main sequence, README to Hugging Face, in this process; `make campaign` runs all pages in a shell.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rela.cli import app
from rela.config import load_config, save_config
from tests.documents.test_commands import PAGES, ROOT, code_lines, rela_commands
from tests.documents.test_pages import PAGES as PAGES_BY_THEMSELVES
from tests.documents.test_pages import demo, write_toy
from tests.tiny_models import BACK, tiny_translator

MAIN = ["README.md", "docs/training.md", "docs/training-options.md", "docs/translating.md", "docs/hugging-face.md"]
"""Read in this order after `make demo`: what a page makes, the next one uses."""
SMALL = {
    "data.vocabulary_size": 300,
    "model.width": 16,
    "model.feed_forward": 24,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "train.steps": 8,
    "train.cooldown": 4,
    "train.centring": 3,
    "train.warmup": 4,
    "train.tokens": 300,
    "train.validate_every": 4,
    "train.save_every": 4,
    "decode.max_length_extra": 2,
}
"""What is smaller in configs/demo.yaml; and `rela data toy` writes fewer pairs."""
ELSEWHERE = {
    "analysis.md": "test_pages.py",
    "data.md": "needs a download; test_pages.py runs its Python, tests/data/test_datasets.py downloads",
    "paper.md": "names commands in a table, each with placeholders",
    "results.md": "corpora of half a million pairs on a GPU",
    "scaling.md": "several machines; tests/cluster runs Ray and tests/training/test_elastic.py torchrun",
    "serving.md": "runs until it is interrupted; tests/commands/test_serve.py asks it",
    "europarl-en-de": "corpora of half a million pairs on a GPU",
}
UNTIL_INTERRUPTED = re.compile(r"rela (serve|explore(?!.*--out))")


def small_configs(folder: Path) -> None:
    """configs/demo.yaml with smaller sizes, where a reader finds it."""
    overrides = [f"{name}={value}" for name, value in SMALL.items()]
    (folder / "configs").mkdir()
    save_config(load_config(ROOT / "configs" / "demo.yaml", overrides), folder / "configs" / "demo.yaml")


def commands(page: Path) -> Iterator[str]:
    """The command lines of a page that call `rela`, without comments, smaller where they make text."""
    for line in code_lines(page):
        line = re.sub(r"\s+# .*", "", line)
        called = re.match(r"(echo .*\| )?(python -m rela\.|(torchrun .*-m )?rela [a-z])", line)
        if called and "…" not in line and not UNTIL_INTERRUPTED.match(line):
            yield re.sub(r"(rela data toy --out \S+)$", r"\1 --train 300 --valid 10 --test 10", line)


def in_process(line: str) -> str:
    """What a command prints, run in this process; `echo TEXT |` in front of it is its input."""
    echoed, _, line = line.rpartition(" | ")
    words = [name for word in shlex.split(line) for name in sorted(glob(word)) or [word]]
    text = " ".join(shlex.split(echoed)[1:]) + "\n" if echoed else None
    done = CliRunner().invoke(app, words[1:], input=text, catch_exceptions=False)
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.output


@pytest.fixture
def reader(tmp_path, monkeypatch) -> Path:
    """A checkout after `make demo`, with tiny models in place of the demo's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    torch.manual_seed(0)
    small_configs(tmp_path)
    demo(tmp_path)
    return tmp_path


def test_readme_training_translating_and_hugging_face_in_order(reader):
    """Each command works on what those before it have left."""
    lines = [line for page in MAIN for line in commands(ROOT / page) if not line.startswith("torchrun")]
    assert len(lines) >= 15
    for line in lines:
        in_process(line)
    for made in ("runs/demo/model", "runs/softmax/model", "runs/tuned/model", "runs/demo/averaged", "demo-hf"):
        assert (reader / made).is_dir()
    again = [in_process(line) for line in commands(ROOT / "docs/training.md") if "prepare" in line]
    assert all("found complete" in output for output in again), "a second reading prepares nothing otherwise"


def made_by(*kinds: str) -> Callable[[Path], None]:
    """A maker of what a page takes as given: models, and texts by their names."""

    def make(folder: Path) -> None:
        write_toy(folder, 60)
        for name in kinds:
            translator = tiny_translator(languages=BACK) if name == "de-en" else tiny_translator()
            translator.save(folder / "runs" / name / "model")
        for name in ("dev", "new", "valid"):
            for side in ("en", "de"):
                shutil.copy(folder / f"test.{side}", folder / f"{name}.{side}")
        one_based = re.sub(r"(\d+)-(\d+)", lambda m: f"{int(m[1]) + 1}-{int(m[2]) + 1}", Path("test.align").read_text())
        for name in ("gold.talp", "dev.talp", "test.talp"):
            (folder / name).write_text(one_based)
        (folder / "page.html").write_text("<p>The <b>dog</b> is sleeping.</p>")
        (folder / "app.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "The dog is sleeping."\nmsgstr ""\n')
        (folder / "terms.tsv").write_text("dog\tHund\n")

    return make


BY_THEMSELVES: dict[str, Callable[[Path], None]] = {
    "alignment.md": made_by("en-de", "de-en"),
    "checking.md": made_by("en-de", "de-en"),
    "documents.md": made_by("demo"),
    "explorer.md": lambda folder: None,
    "export.md": made_by("demo"),
    "filtering.md": made_by("rela-g"),
}
"""Pages that take models and texts as given."""


def shell_in(folder: Path) -> Callable[[str], None]:
    """What runs a line in a shell in which `rela`, `python` and `torchrun` are those of this test."""
    bin = folder / ".bin"
    bin.mkdir(exist_ok=True)
    calls = {"rela": "-m rela", "python": "", "torchrun": "-m torch.distributed.run"}
    for name, module in calls.items():
        (bin / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (bin / name).chmod((bin / name).stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run(line: str) -> None:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "Traceback" not in done.stderr, line

    return run


@pytest.mark.campaign
def test_the_main_sequence_in_a_shell(reader):
    run = shell_in(reader)
    for page in MAIN:
        for line in commands(ROOT / page):
            run(line)


@pytest.mark.campaign
@pytest.mark.parametrize("page", BY_THEMSELVES)
def test_a_page_in_a_shell(reader, page):
    BY_THEMSELVES[page](reader)
    run = shell_in(reader)
    lines = list(commands(ROOT / "docs" / page))
    assert lines
    for line in lines:
        run(line)


def test_every_page_with_commands_is_run_or_says_why_not():
    names = {page for page, _ in rela_commands()} | {page.name for page in PAGES if any(commands(page))}
    run = {Path(page).name for page in MAIN} | set(BY_THEMSELVES) | set(PAGES_BY_THEMSELVES)
    assert names <= run | set(ELSEWHERE)
    assert not set(BY_THEMSELVES) & set(ELSEWHERE)
