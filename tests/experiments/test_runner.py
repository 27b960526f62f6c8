"""The runner, end to end on the embedded corpus: rows, budgets, interruptions, failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments import runner
from experiments.grid import Grid
from experiments.rows import Row, append_row, merge_rows, read_rows, same_settings
from experiments.runner import Options, configuration, expected_seconds, run_grid, thinned, training_log
from rela.decoding.translate import Translator

MakeGrid = Callable[..., Grid]


def quiet(text: str) -> None:
    """Nothing is said."""


def test_a_grid_from_start_to_end(make_grid: MakeGrid, options: Options, now: float, tmp_path: Path) -> None:
    options = replace(options, keep_model=tmp_path / "kept")
    new = run_grid(make_grid(), options, now, quiet)
    assert [row["id"] for row in new] == ["toy/toy/rela-g/1", "toy/toy/softmax/1"]
    assert read_rows(tmp_path / "rows/toy.jsonl") == read_rows(tmp_path / "out/toy.jsonl") == new
    rela, softmax = new
    for row in new:
        assert row["error"] is None
        assert row["commit"] == "abc1234"
        assert row["training"]["curve"]["step"] == list(range(1, 13))
        assert row["training"]["validation"]["step"] == [6, 12]
        assert row["training"]["curve"]["nll"][-1] < row["training"]["curve"]["nll"][0]
        assert {name: found["sentences"] for name, found in row["scores"].items()} == {"toy": 12, "valid": 12}
        assert "version:" in row["scores"]["toy"]["bleu"]["signature"]
        assert set(row["seconds"]) == {"training", "evaluation", "analysis"}
        assert row["analysis"]["pairs"] == 10
        assert row["analysis"]["gold"] == 12
        for way in ("normal", "shifted"):
            rates = row["analysis"]["aer"][way]
            assert len(rates["layers"]) == len(rates["heads"]) == 2
            assert rates["best_head"]["aer"] == min(min(heads) for heads in rates["heads"])
            assert rates["best_layer"]["aer"] == min(rates["layers"]) <= rates["aol"]
            assert rates["best_head"]["aer"] <= rates["aoh"]
    assert rela["data"] == softmax["data"]
    assert rela["parameters"] > softmax["parameters"]  # the gates
    assert all(value > 0 for value in rela["analysis"]["sparsity"]["cross"])
    assert softmax["analysis"]["sparsity"]["cross"] == softmax["analysis"]["null_rate"]["cross"] == [0.0, 0.0]
    for pairs, whole in (("true", "null_rate"), ("shuffled", "null_rate_shuffled")):
        found = rela["analysis"]["null_rate_by_probability"][pairs]
        counts = {"probable": found["probable_tokens"], "improbable": found["tokens"] - found["probable_tokens"]}
        nulls = [counts[name] * torch.tensor(found[name]) for name in counts if counts[name]]
        torch.testing.assert_close(
            sum(nulls) / found["tokens"], torch.tensor(rela["analysis"][whole]["cross"]), atol=2e-6, rtol=0
        )  # rates are rounded to six digits
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".claims"]  # weights are not kept …
    kept = tmp_path / "kept/toy-toy-rela-g-1"
    assert Translator.load(kept, "cpu").translate(["the dog sleeps ."])  # … but for a small copy, if asked for
    assert (kept / "model.safetensors").stat().st_size < 2.1 * rela["parameters"] + 20_000
    assert run_grid(make_grid(), options, time.monotonic(), quiet) == []  # a row is never written twice
    assert len(read_rows(tmp_path / "rows/toy.jsonl")) == 2


def test_what_does_not_fit_into_the_budget_is_not_started(make_grid: MakeGrid, options: Options, now: float) -> None:
    said: list[str] = []
    assert run_grid(make_grid(), replace(options, minutes=0), now, said.append) == []
    assert run_grid(make_grid(), replace(options, minutes=1), now, said.append) == []  # 100 s are expected
    assert len(said) == 4
    assert all("left for later" in text for text in said)
    assert [path.name for path in options.runs.iterdir()] == [".claims"]


def test_expected_time_comes_from_rows(make_grid: MakeGrid) -> None:
    grid = make_grid()
    rela, softmax = grid.runs
    config = configuration(rela, Options())  # 12 steps
    row = {"task": "toy", "variation": "rela-g", "error": None, "seconds": {"training": 20.0, "analysis": 5.0}}
    rows: list[Row] = [row | {"config": {"train": {"steps": 6}}}]
    assert expected_seconds(rela, config, [], grid) == 100
    assert expected_seconds(rela, config, rows, grid) == 50  # twice the steps
    assert expected_seconds(softmax, config, rows, grid) == 50  # the grid's 100, by half too much for the other
    assert expected_seconds(softmax, config, [rows[0] | {"error": {"stage": "training"}}], grid) == 100
    assert expected_seconds(rela, config, [rows[0] | {"seconds": {"training": None}}], grid) == 100  # unknown


def test_expected_time_without_rows_depends_on_runs_side_by_side(make_grid: MakeGrid) -> None:
    grid = make_grid()
    run = grid.runs[0]
    config = configuration(run, Options())
    assert expected_seconds(run, config, [], grid, workers=6) == 100 * 5  # 100 s are those of a run alone
    beside_others = replace(grid, workers=6)
    assert expected_seconds(run, config, [], beside_others, workers=6) == 100
    assert expected_seconds(run, config, [], beside_others, workers=1) == 100


def test_a_run_that_is_stopped_goes_on(make_grid: MakeGrid, options: Options) -> None:
    """Stopped by the budget in training, continued by later commands: the same model as without a stop."""
    options = replace(options, only=["rela-g"], resumable=True, overrides=["train.steps=120", "train.save_every=12"])
    grid, said, new, checkpoints = make_grid(), list[str](), list[Row](), set[str]()
    seconds = 0.2  # too little for the whole; how much a step needs depends on the machine
    while not new:
        new = run_grid(grid, replace(options, minutes=seconds / 60), time.monotonic(), said.append)
        checkpoints |= {path.name for path in options.runs.glob("*/checkpoints/step-*")}
        seconds *= 1.4
    assert any("the time is over" in text for text in said)
    assert checkpoints
    elsewhere = replace(options, minutes=9.5, rows=options.rows / "again", runs=options.runs / "again")
    (whole,) = run_grid(grid, elsewhere, time.monotonic(), quiet)
    (stopped,) = new
    assert stopped["error"] is whole["error"] is None
    assert stopped["seconds"]["training"] > whole["seconds"]["training"] / 2  # of all commands, not of the last
    assert stopped["training"]["validation"] == whole["training"]["validation"]
    assert stopped["scores"] == whole["scores"]
    assert run_grid(grid, options, time.monotonic(), quiet) == []


def test_scores_outlast_a_kill_in_the_analysis(
    make_grid: MakeGrid, options: Options, now: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command neither trains nor translates again, and knows how long both took."""

    class Killed(BaseException): ...

    def kill(*_: object) -> Row:
        raise Killed

    grid, options = make_grid(), replace(options, only=["rela-g"])
    with monkeypatch.context() as patch:
        patch.setattr(runner, "attention", kill)
        with pytest.raises(Killed):
            run_grid(grid, options, now, quiet)
    (folder,) = (path for path in options.runs.iterdir() if path.is_dir() and path.name != ".claims")
    kept = json.loads((folder / runner.RESULT).read_text())
    monkeypatch.setattr(runner, "scores", kill)
    (row,) = run_grid(grid, options, time.monotonic(), quiet)
    assert row["scores"] == kept["scores"]
    assert row["analysis"]["pairs"] == 10
    assert row["seconds"]["training"] >= round(kept["seconds"]["training"], 1)
    (folder / "log.jsonl").parent.mkdir(parents=True)
    assert runner.earlier_result(folder).seconds == {"training": None}  # killed before anything was kept


def test_a_failing_run_becomes_a_row_and_the_grid_goes_on(make_grid: MakeGrid, options: Options, now: float) -> None:
    grid = make_grid("""
experiment: toy
variations:
  wild: {attention: softmax, set: [train.learning_rate=1e30], seconds: 1}
  tame: {attention: softmax, seconds: 1}
runs: [{variation: [wild, tame], seed: 1, task: toy}]
""")
    failed, fine = run_grid(grid, options, now, quiet)
    assert failed["error"]["stage"] == "training"
    assert failed["error"]["type"] == "TrainingFailed"
    assert failed["training"]["curve"]["nll"][-1] is None or failed["training"]["curve"]["nll"][-1] > 10
    assert failed["scores"] is failed["analysis"] is None
    assert fine["error"] is None
    assert run_grid(grid, options, time.monotonic(), quiet) == []
    (again,) = run_grid(grid, replace(options, retry=True), time.monotonic(), quiet)
    assert again["id"] == failed["id"]


def test_a_missing_corpus_is_not_a_failed_run(
    make_grid: MakeGrid, options: Options, now: float, tmp_path: Path
) -> None:
    said: list[str] = []
    assert run_grid(make_grid(), replace(options, data=tmp_path / "nowhere"), now, said.append) == []
    assert all("is missing" in text for text in said)
    assert not (tmp_path / "rows").exists()


def test_other_settings_are_another_run() -> None:
    before = {"train": {"steps": 5, "device": "cpu"}, "model": {"width": 32}}
    assert same_settings(before, {"train": {"steps": 5, "device": "cuda"}, "model": {"width": 32, "newer": 1}})
    assert not same_settings(before, {"train": {"steps": 6}, "model": {"width": 32}})


def test_rows_that_are_there_are_not_merged_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, {"id": "a"})
    assert merge_rows(path, [{"id": "a"}, {"id": "b"}]) == 1
    assert merge_rows(path, [{"id": "a"}, {"id": "b"}]) == 0
    assert [row["id"] for row in read_rows(path)] == ["a", "b"]
    path.write_text('{"id": "a"}\n{"id"')
    with pytest.raises(ValueError, match="line 2"):
        read_rows(path)


def test_a_log_keeps_the_last_of_repeated_steps_and_both_ends(tmp_path: Path) -> None:
    event = {"event": "train", "nll": 1.0, "loss": 2.0, "tokens_per_second": 100.0}
    steps = [*range(1, 301), *range(250, 351)]  # killed at 300, resumed at 249
    lines = [json.dumps(event | {"step": step, "nll": float(number)}) for number, step in enumerate(steps)]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, '{"event": "tr']))
    found = training_log(tmp_path / "log.jsonl")["curve"]
    assert len(found["step"]) == 100
    assert found["step"] == sorted(set(found["step"]))
    assert (found["step"][0], found["step"][-1]) == (1, 350)
    assert found["nll"][-1] == 400.0
    assert thinned([{"step": 1}], 100) == [{"step": 1}]
    assert training_log(tmp_path / "none.jsonl")["tokens_per_second"] is None
