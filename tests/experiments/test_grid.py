"""Grids: every shipped one is complete and names things that exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from experiments.cells import GRIDS as FOLDER
from experiments.grid import Grid, load_grid, load_tasks, matching
from experiments.runner import Options, configuration
from rela.attention.kinds import kind_of

GRIDS = sorted(FOLDER.glob("*.yaml"))


@pytest.fixture(scope="module")
def table1() -> Grid:
    return load_grid(FOLDER / "table1.yaml")


def test_grids_were_found() -> None:
    assert {path.stem for path in GRIDS} >= {"table1", "table3", "sparsity"}


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_each_run_has_its_own_id_and_a_configuration(path: Path) -> None:
    grid = load_grid(path)
    assert grid.experiment == path.stem  # the name of its file of rows
    ids = [run.id for run in grid.runs]
    assert len(set(ids)) == len(ids)
    assert len({run.replace("/", "-") for run in ids}) == len(ids)  # each trains in a folder of its own
    for run in grid.runs:
        config = configuration(run, Options())
        assert config.train.seed == run.seed
        assert config.train.average_last == 5
        assert config.decode.beam == 4


def test_table_1_has_the_thirteen_rows_of_the_paper(table1: Grid) -> None:
    rows = {variation.row: name for name, variation in table1.variations.items()}
    assert sorted(row for row in rows if row is not None) == list(range(1, 14))
    seeds = Counter(run.variation_name for run in table1.runs)
    assert seeds["softmax"] == seeds["rela-g"] == 3
    assert set(seeds) == set(table1.variations)
    kinds = {
        name: [
            getattr(configuration(run, Options()).model, f"{type}_attention")
            for type in ("encoder", "decoder", "cross")
        ]
        for name in table1.variations
        for run in matching(table1.runs, [f"/{name}/"])
    }
    assert kinds["rela-g-encoder"] == ["rela-g", "softmax", "softmax"]
    assert kinds["rela-g-decoder"] == ["softmax", "rela-g", "softmax"]
    assert kinds["rela-g-cross"] == ["softmax", "softmax", "rela-g"]
    for name in ("softmax", "sparsemax", "entmax15", "relu"):
        assert {kind_of(kind).weights for kind in kinds[name]} == {name}
        assert {kind_of(kind).norm for kind in kinds[name]} == {"none"}


def test_the_most_telling_runs_come_first(table1: Grid) -> None:
    assert [run.id for run in table1.runs[:3]] == [
        f"table1/en-de/{name}/1" for name in ("relu2-g", "softmax", "rela-g")
    ]
    assert [run.variation.row for run in table1.runs[9:12]] == [11, 12, 13]


def test_tasks_translate_in_the_direction_of_their_configuration() -> None:
    from rela.config import load_config

    for name, task in load_tasks().items():
        config = load_config(task.config)
        assert (config.data.source_language, config.data.target_language) == tuple(name.split("-")[-2:])
        for test in task.tests.values():
            assert f".{config.data.source_language}." in f"{test.source}."
            assert f".{config.data.target_language}." in f"{test.target}."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("experiment: x\nvariations: {a: {attention: softmax}}\nruns: [{variation: b, seed: 1, task: en-de}]", "'b'"),
        ("experiment: x\nvariations: {a: {}}\nruns: [{variation: a, seed: 1, task: de-xx}]", "'de-xx'"),
        ("experiment: x\nworkers: 0\nvariations: {}\nruns: []", "workers is 0; wanted a number of processes"),
        ("experiment: x\nvariations: {a: {}}\nruns: [{variation: a, seed: [1, 1], task: en-de}]", "twice"),
        ("experiment: x\nvariations: {a: {sets: []}}\nruns: []", "sets"),
        ("experiment: x\nruns: []", "variations"),
    ],
)
def test_a_grid_with_a_mistake_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ValueError, match=told):
        load_grid(tmp_path / "x.yaml")
