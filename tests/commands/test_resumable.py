"""`rela translate --resume`: an interrupted run goes on, and its output is that of one that was not interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rela.commands import resumable
from rela.commands.resumable import ResumableOutput
from rela.decoding.translate import Translator
from rela.errors import RunFailed
from tests.commands import cases

SOURCES = cases.SOURCES[:9]

OPTIONS = ["--window", 3, "--batch-tokens", 30]


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "source.en").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def stop_after(monkeypatch):
    """Lets a run fail after so many lines have been counted, with a record after every window."""
    monkeypatch.setattr(resumable, "SECONDS", 0.0)
    count = ResumableOutput.count

    def install(lines: int) -> None:
        left = [lines]

        def counted(self, source: str) -> None:
            count(self, source)
            left[0] -= 1
            if not left[0]:
                raise RunFailed("stopped by the test")

        monkeypatch.setattr(ResumableOutput, "count", counted)

    return install


@pytest.mark.parametrize(
    "options",
    [
        ["--beam", 1],
        ["--sampling", "--seed", 3, "--nbest", 2, "--format", "jsonl"],
        pytest.param(["--nbest", 2, "--scores", "--alignments"], marks=pytest.mark.campaign),
        pytest.param(["--precision", "int8", "--scores"], marks=pytest.mark.campaign),
    ],
    ids=str,
)
def test_the_output_is_that_of_an_uninterrupted_run(call, model, texts, stop_after, monkeypatch, options):
    whole = texts / "whole.de"
    assert call("translate", model, texts / "source.en", *OPTIONS, *options, "--out", whole)[0] == 0
    line = ["translate", model, texts / "source.en", *OPTIONS, *options, "--resume", "--out", texts / "out.de"]
    for stopped_at in (4, 7):  # the second time counts the lines that are skipped too
        stop_after(stopped_at)
        code, _, errors = call(*line)
        assert (code, "stopped by the test" in errors) == (2, True)
        assert not (texts / "out.de").exists()
    assert json.loads((texts / "out.de.partial.json").read_text())["lines"] == 6
    monkeypatch.undo()
    code, _, errors = call(*line)
    *warned, last = errors.splitlines()
    assert (code, last) == (0, "resumed at line 7")
    assert len(warned) == ("--alignments" in options), "that no heads were chosen"
    assert (texts / "out.de").read_bytes() == whole.read_bytes()
    assert not list(texts.glob("*.partial*"))


def test_prefixes_go_on_with_their_lines(call, model, texts, stop_after, monkeypatch):
    (texts / "begin").write_text("".join(f"{'Hund' if n % 3 else ''}\n" for n in range(len(SOURCES))), encoding="utf-8")
    line = ["translate", model, texts / "source.en", *OPTIONS, "--beam", 1, "--prefixes", texts / "begin"]
    whole = call(*line)[1]
    stop_after(4)
    assert call(*line, "--resume", "--out", texts / "out.de")[0] == 2
    monkeypatch.undo()
    assert call(*line, "--resume", "--out", texts / "out.de")[0] == 0
    assert (texts / "out.de").read_text(encoding="utf-8") == whole


def test_another_source_model_or_setting_is_refused(call, fails, model, texts, stop_after, monkeypatch):
    line = ["translate", model, texts / "source.en", *OPTIONS, "--beam", 1, "--resume", "--out", texts / "out.de"]
    stop_after(4)
    call(*line)
    monkeypatch.undo()
    fails(*line, "--length-penalty", 0.3, named="begun with other options")
    fails(*line, "--scores", named="begun with other columns")
    (texts / "source.en").write_text("\n".join(SOURCES[::-1]) + "\n", encoding="utf-8")
    fails(*line, named="the source is not the one that")
    record = texts / "out.de.partial.json"
    whole = json.loads(record.read_text(encoding="utf-8"))
    for damaged in ("{", "[" * 100_000, json.dumps({**whole, "size": "9"}), json.dumps({**whole, "lines": -1})):
        record.write_text(damaged, encoding="utf-8")
        fails(*line, named="out.de.partial.json is damaged")
    record.unlink()
    assert call(*line)[0] == 0, "without its record it begins anew"
    wanted = Translator.load(model, "cpu").translate(SOURCES[::-1], beam=1)
    assert (texts / "out.de").read_text(encoding="utf-8").splitlines() == wanted


def test_resume_needs_a_file(fails, model, texts):
    fails("translate", model, texts / "source.en", "--resume", named="--out FILE too")
    fails("translate", model, texts / "source.en", "--resume", "--out", "/dev/null", named="--out FILE too")


@pytest.mark.campaign
def test_killed_runs_go_on(model, texts):
    """SIGKILL, twice at most, when a record of finished lines has been written; then one run ends."""
    (texts / "long.en").write_text("\n".join(SOURCES * 400) + "\n", encoding="utf-8")
    out, record = texts / "out.de", texts / "out.de.partial.json"
    line = ["translate", model, texts / "long.en", "--window", 20, "--beam", 1, "--resume", "--out", out]
    command = [sys.executable, "-m", "rela", *map(str, line)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills = 0
    while not out.exists():
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            before = record.read_bytes() if record.exists() else b""
            while process.poll() is None and kills < 2:
                if record.exists() and record.read_bytes() != before:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.001)
    wanted = Translator.load(model, "cpu").translate(SOURCES, beam=1) * 400
    assert out.read_text(encoding="utf-8").splitlines() == wanted
    assert kills > 0
