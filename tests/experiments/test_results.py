"""Tables and figures: known answers, what is missing said, and the same bytes from the same rows."""

from __future__ import annotations

import json
import random
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from experiments import paper, speeds
from experiments.cells import GRIDS, NOT_RUN, Cell, Cells, cells_of, load_cells, signed
from experiments.grid import Grid, Run, load_grid
from experiments.results import DOCS, FIGURE_NAMES, FIGURES, PAGES, generated, rebuild
from experiments.rows import Row, write_rows
from experiments.runner import Options, configuration
from experiments.tables import TABLES, bleu
from rela.config import to_dict

LAYERS, HEADS = 6, 8
TYPES = ("encoder", "decoder", "cross")


def made_row(run: Run, score: float, error: dict[str, str] | None = None) -> Row:
    """A row as the runner writes it, with seeded figures."""
    draw = random.Random(run.id)

    def layers() -> list[float]:
        return [round(draw.random(), 6) for _ in range(LAYERS)]

    def types() -> dict[str, list[float]]:
        return {type: layers() for type in TYPES}

    def rates() -> dict[str, Any]:
        heads = [[round(100 * draw.random(), 4) for _ in range(HEADS)] for _ in range(LAYERS)]
        best = {"aer": min(map(min, heads)), "layer": 1, "head": 1}
        return {"best_head": best, "best_layer": best, "aol": 70.0, "aoh": 60.0, "layers": layers(), "heads": heads}

    analysis = {
        "sparsity": types(),
        "null_rate": types(),
        "null_rate_shuffled": types(),
        "sink_mass": types(),
        "diversity": {temperature: types() for temperature in ("1", "0.5", "0.25", "0.1")},
        "auroc_shuffled": {"null_rate": draw.random()},
        "aer": {way: rates() for way in ("normal", "shifted")},
    }
    curve = {"step": [50, 100, 6000], "nll": [7.0, 5.0, 1.5], "loss": [7.5, 5.5, 2.0]}
    return {
        "id": run.id,
        "experiment": run.experiment,
        "task": run.task_name,
        "variation": run.variation_name,
        "seed": run.seed,
        "limit": None,
        "error": error,
        "config": to_dict(configuration(run, Options())),
        "parameters": 52_330_496,
        "training": {"curve": curve, "validation": curve, "tokens_per_second": 650_000, "peak_memory_gib": 6.1},
        "scores": None if error else {test: {"bleu": {"value": score}} for test in run.task.tests},
        "analysis": None if error else analysis,
    }


@pytest.fixture(scope="module")
def table1() -> Grid:
    return load_grid(GRIDS / "table1.yaml")


@pytest.fixture(scope="module")
def rows(table1: Grid) -> list[Row]:
    """Rows of softmax and ReLA-g, of one seed of row 13, and of row 4, which failed."""
    scores = {"softmax": 24.0, "rela-g": 23.0, "rela-g-cross": 24.25}
    found = [
        made_row(run, scores[run.variation_name] + run.seed / 10) for run in table1.runs if run.variation_name in scores
    ]
    failed = next(run for run in table1.runs if run.variation_name == "relu")
    return [*found, made_row(failed, 0.0, {"stage": "training", "type": "TrainingFailed", "message": "no better"})]


def lines_of(table: str) -> dict[str, list[str]]:
    """The fields of each line of Table 1, by the paper's number."""
    fields = [[field.strip() for field in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line for line in fields}


def test_table_1_against_known_answers(table1: Grid, rows: list[Row]) -> None:
    cells = cells_of(table1, rows)
    lines = lines_of(TABLES["table-1"](lambda experiment: cells))
    assert [number for number in lines if number.isdigit()] == [str(number) for number in range(1, 14)]
    assert lines["row"][3:5] == ["europarl", "newstest2014"]
    assert lines["1"][2:4] == ["26.9", "24.20 ± 0.10"]
    assert lines["7"][2:4] == ["26.6 (−0.3)", "23.20 ± 0.10 (−1.00)"]
    assert lines["13"][2:4] == ["27.0 (+0.1)", "24.35 (+0.15)"]
    assert lines["4"][2:4] == ["failed", "failed"]
    assert lines["6"][3] == NOT_RUN
    assert [lines[number][-1] for number in ("1", "4", "6", "13")] == ["3 of 3", "0 of 1", "0 of 1", "1 of 1"]


def test_a_row_of_other_settings_is_not_of_the_table(table1: Grid, rows: list[Row]) -> None:
    other = [row | {"config": row["config"] | {"train": row["config"]["train"] | {"steps": 7}}} for row in rows]
    rehearsed = [row | {"limit": 12} for row in rows]
    assert not any(cell.rows for cell in cells_of(table1, [*other, *rehearsed]).values())
    assert any(cell.rows for cell in cells_of(table1, [*other, *rows]).values())


def test_a_later_row_of_a_run_takes_the_place_of_an_earlier(table1: Grid, rows: list[Row]) -> None:
    run = table1.runs[0]
    early, late = made_row(run, 10.0, {"stage": "training", "type": "x", "message": "x"}), made_row(run, 20.0)
    cell = cells_of(table1, [early, *rows, late])[run.task_name, run.variation_name]
    assert cell.values(bleu("europarl")) == [20.0]


def test_mean_and_deviation() -> None:
    rows = tuple({"scores": {"a": 1}, "value": value} for value in (1.0, 2.0, 4.0))
    cell = Cell("a", "en-de", None, 3, rows)
    assert cell.text(lambda row: row["value"]) == f"2.33 ± {statistics.stdev([1, 2, 4]):.2f}"
    assert signed(0.004) == "0.00"
    assert signed(-0.46) == "−0.46"


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, rows: list[Row]) -> None:
    """In whatever order they were added, and whatever the pages held before; with every table and figure there."""
    written, before = [], DOCS
    for number, order in enumerate((rows, rows[::-1])):
        write_rows(tmp_path / f"rows{number}/table1.jsonl", order)
        docs = tmp_path / f"docs{number}"
        copy_pages(before, docs)
        rebuild(docs, tmp_path / f"rows{number}")
        written.append({path.name: path.read_bytes() for path in sorted(docs.rglob("*.*"))})
        before = docs
    assert written[0] == written[1]
    assert set(written[0]) == {*PAGES, "curves.svg", *(f"figure-{number}.svg" for number in (3, 4, 5, 6))}
    assert "24.20 ± 0.10" in written[0]["results.md"].decode()


def copy_pages(source: Path, docs: Path) -> None:
    """The pages of results in a new folder."""
    docs.mkdir()
    for page in PAGES:
        shutil.copyfile(source / page, docs / page)


def test_the_pages_are_up_to_date(tmp_path: Path) -> None:
    """If this fails, run `make results` and commit what it wrote."""
    docs = tmp_path / "docs"
    copy_pages(DOCS, docs)
    rebuild(docs)
    for page in PAGES:
        assert (docs / page).read_text(encoding="utf-8") == (DOCS / page).read_text(encoding="utf-8")
    drawn = {path.name for path in docs.rglob("*.svg")}
    assert drawn == {path.name for path in (DOCS / FIGURES).glob("*.svg")}


def test_every_table_and_figure_is_on_one_page() -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    grids = [f"grid {path.stem}" for path in GRIDS.glob("*.yaml")]
    assert all(text.count(f"<!-- {name} -->\n") == 1 for name in [*TABLES, *FIGURE_NAMES])
    assert all(text.count(f"<!-- {name} -->\n") <= 1 for name in grids)


def test_an_unknown_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- table-9 -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match="'table-9'"):
        generated(tmp_path / "page.md", {}, tmp_path)


def test_tables_without_rows_say_so(tmp_path: Path) -> None:
    def load(experiment: str) -> Cells:
        return load_cells(experiment, tmp_path)

    for name, table in TABLES.items():
        assert NOT_RUN in table(load), name


def test_speeds_are_relative_to_softmax_of_the_same_engine(tmp_path: Path) -> None:
    def row(side: str, speed: float, batch: int = 1) -> dict[str, Any]:
        return {"side": side, "batch": batch, "source_length": "30", "tokens_per_second": speed}

    rows = [row("softmax", 100), row("softmax", 7, 64), row("rela-g", 90), row("softmax:reference", 10)]
    rows += [row("sparsemax", 5), row("entmax15", 1, 64)]
    (tmp_path / "decoding.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = {kind: speeds.decoding(kind, tmp_path) for kind in paper.TABLE_2}
    assert found == {"softmax": 1.0, "rela-g": 0.9, "sparsemax": 0.5, "entmax15": None}
    (tmp_path / "training").mkdir()
    step = {"side": "rela-g", "target_tokens_per_second": 300.0, "ratio_to_softmax": 1.5, "peak_memory_gib": 2.0}
    (tmp_path / "training/simplex.json").write_text("[]")
    (tmp_path / "training/training.json").write_text(json.dumps([{"side": "rela-g", "waited": 1.0}, step]))
    assert speeds.training("rela-g", tmp_path) == speeds.Training(300.0, 1.5, 2.0)
    assert speeds.training("softmax", tmp_path) is None
