"""Wrong files and options of the experiments are one line, and nothing is computed without a message."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import programs
from experiments.__main__ import main
from experiments.detection_table import labelled_rows
from experiments.filter_experiment import read_noisy
from experiments.grid import load_grid
from experiments.rows import FIELDS, read_rows, write_rows
from rela.training.watchdog import TrainingFailed
from tests.tiny_models import tiny_folder

TRAIN = "--train-source a --train-target b --source a --target b --out out/links"
MODELS = "--forward nowhere --reverse nowhere --source a --target b"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with three pairs and programs that fail or write nothing."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": "x y\n" * 3, "b": "z\n" * 3, "short": "z\n", "empty": "", "links": "zz\n"}.items():
        Path(name).write_text(text)
    for name, code in (("fails", 1), ("writes-nothing", 0)):
        Path(name).write_text(f"#!/bin/sh\nexit {code}\n")
        Path(name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (f"fast_align_links {TRAIN} --program a", "Permission denied"),
        (f"fast_align_links {TRAIN} --program fails", "returned non-zero exit status 1"),
        (f"fast_align_links {TRAIN} --program writes-nothing", "links of 0 sentences; wanted those of 3"),
        (f"fast_align_links {TRAIN} --program fails --target short", "a has 3, short has 1"),
        (f"fast_align_links {TRAIN} --program fails --out a/x", "a"),
        ("hansards_text --corpus nowhere --gold . --out h", "nowhere/train.en.xz"),
        (f"alignment_table {MODELS} --gold nowhere", "nowhere: No such file or directory"),
        (f"alignment_table {MODELS} --gold links", "links:1"),
        (f"word_detection {MODELS}", "nowhere is not a model folder"),
        ("detection_table --forward nowhere --labelled a", "nowhere is not a model folder"),
        ("filter_experiment plant --source a --target short --out w", "unequal line counts"),
        ("filter_experiment plant --source empty --target empty --out w", "no pairs"),
        ("filter_experiment rank --model nowhere --out w", "w/noisy.source"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(
    files: Path, line: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = line.split()
    script: Callable[..., object] = importlib.import_module(f"experiments.{name}").main
    assert programs.run(lambda: script(words)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1, said
    assert said.startswith("experiments: ")
    assert named in said


def test_a_failed_run_is_one_line_and_a_bug_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise TrainingFailed("the loss is nan")

    assert programs.run(fail) == 2
    assert capsys.readouterr().err == "experiments: the loss is nan\n"
    with pytest.raises(KeyError):
        programs.run(lambda: {}["x"])


@pytest.mark.parametrize(
    "words",
    [
        "alignment_table --links eflomal",
        "alignment_table --resamples 0",
        "detection_table --forward a --source a --target b --bad omission",
        "detection_table --forward a --source a --target b --pairs -1",
        "word_detection --skip -1",
        "word_detection --resamples 0",
        "filter_experiment plant --out w --share 2",
        "filter_experiment plant --out w --share nan",
        "filter_experiment plant --out w --limit 0",
        "filter_experiment train --out w --rule nothing",
        "__main__ run grid.yaml --limit 0",
        "__main__ run grid.yaml --workers 0",
    ],
)
def test_options_out_of_range_are_refused_before_anything_is_read(
    files: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = words.split()
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(f"experiments.{name}").main(rest)
    assert caught.value.code == 2
    assert "wanted" in (said := capsys.readouterr().err) or "choose from" in said


def test_gold_links_of_other_text_are_refused(files: Path) -> None:
    """An empty file was taken for no gold links: the numbers were those of noise."""
    from experiments.word_detection import main as detect

    tiny_folder(files / "model")
    words = ["--forward", "model", "--source", "a", "--target", "b", "--gold", "empty", "--device", "cpu"]
    with pytest.raises(ValueError, match="links of 0 of these sentences; the text has 3"):
        detect(words)


@pytest.mark.parametrize("text", ["", "a\tb\tomission\nx\ty\t1\n", "source\ttranslation\tomission\nx\n"])
def test_a_labelled_table_without_text_is_refused(files: Path, text: str) -> None:
    Path("table").write_text(text)
    with pytest.raises(ValueError, match="table has no"):
        labelled_rows(None, Path("table"), ["omission=omission"], 5)  # type: ignore[arg-type]


def test_kinds_of_noise_of_other_text_are_refused(files: Path) -> None:
    for name, other in (("source", "a"), ("target", "b"), ("kinds", "short")):
        Path(f"noisy.{name}").write_text(Path(other).read_text())
    with pytest.raises(ValueError, match="1 lines for 3 pairs"):
        read_noisy(files)


@pytest.mark.parametrize("minutes", ["nan", "inf"])
def test_a_budget_without_end_is_refused(files: Path, minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With nan every run fitted."""
    assert main(["run", "grid.yaml", "--minutes", minutes]) == 2
    assert "--minutes is" in capsys.readouterr().err


ROW = dict.fromkeys(FIELDS) | {"experiment": "toy"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1]", "line 1: wanted a JSON object"),
        ('{"a":', "line 1: wanted a JSON object"),
        ("[" * 100_000, "line 1: wanted a JSON object"),
        (json.dumps(ROW) + '\n{"experiment": "toy"}', "row 2 lacks id, task"),
        (json.dumps(ROW | {"experiment": "../toy"}), "experiment is '../toy'"),
        (json.dumps(ROW | {"experiment": 5}), "experiment is 5"),
        (None, "No such file"),
    ],
)
def test_rows_that_are_none_are_not_merged(
    files: Path, text: str | None, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.rows.ROWS", files / "rows")
    if text is not None:
        Path("new.jsonl").write_text(text)
    assert main(["merge", "new.jsonl"]) == 2
    assert named in capsys.readouterr().err
    assert not (files / "rows").exists()


def test_a_row_may_hold_any_line_separator(files: Path) -> None:
    rows = [{"id": "a\u2028b\x85c\x0bd"}, {"id": "e"}]
    write_rows("rows.jsonl", rows)
    assert read_rows("rows.jsonl") == rows


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"variations": ["a"]}, "variations is"),
        ({"variations": {"a": {"seconds": "no"}}}, "a: seconds is 'no'"),
        ({"variations": {"a": {"seconds": 0}}}, "a: seconds is 0"),
        ({"runs": 5}, "run 1 is 5"),
        ({"runs": [{"variation": [["a"]], "seed": 1, "task": "en-de"}]}, "run 1 names"),
        ({"experiment": "../x"}, "experiment is '../x'"),
        ({"experiment": None}, "experiment is None"),
    ],
)
def test_a_grid_of_wrong_types_is_refused_by_name(files: Path, change: dict[str, object], named: str) -> None:
    whole = {"experiment": "x", "variations": {"a": {}}, "runs": [{"variation": "a", "seed": 1, "task": "en-de"}]}
    Path("grid.yaml").write_text(json.dumps(whole | change))
    with pytest.raises(ValueError, match=r"grid\.yaml") as caught:
        load_grid("grid.yaml")
    assert named in str(caught.value)
