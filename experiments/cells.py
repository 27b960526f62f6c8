"""The runs of one setting over its seeds, and how their figures are written: mean ± standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.grid import Grid, Run, load_grid
from experiments.rows import ROWS, Row, read_rows, row_of
from experiments.runner import Options, configuration
from rela.config import to_dict

GRIDS = Path(__file__).with_name("grids")
NOT_RUN = "not run yet"
Figure = Callable[[Row], float | None]


@dataclass(frozen=True)
class Cell:
    """One variation on one task: the runs that are wanted, and the rows of those that are done."""

    variation: str
    task: str
    paper_row: int | None
    """Its number in the paper's Table 1."""
    wanted: int
    rows: tuple[Row, ...]

    @property
    def finished(self) -> list[Row]:
        """The rows of runs that came as far as their scores."""
        return [row for row in self.rows if row["scores"]]

    @property
    def analysed(self) -> list[Row]:
        """The rows of runs whose attention was measured."""
        return [row for row in self.rows if row["analysis"]]

    @property
    def count(self) -> str:
        """How many runs the scores are the mean of."""
        return f"{len(self.finished)} of {self.wanted}"

    @property
    def analysed_count(self) -> str:
        """How many runs the measures of attention are the mean of."""
        return f"{len(self.analysed)} of {self.wanted}"

    def values(self, figure: Figure) -> list[float]:
        """A figure of each run that has it."""
        found = [figure(row) for row in self.finished]
        return [value for value in found if value is not None]

    def mean(self, figure: Figure) -> float | None:
        values = self.values(figure)
        return statistics.fmean(values) if values else None

    def text(self, figure: Figure, digits: int = 2) -> str:
        """Mean ± standard deviation (of a sample); one run has no deviation."""
        values = self.values(figure)
        if not values:
            return "failed" if self.rows and not self.finished else "–" if self.rows else NOT_RUN
        mean = f"{statistics.fmean(values):.{digits}f}"
        return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean

    def against(self, other: Cell, figure: Figure, digits: int = 2) -> str:
        """`text`, and in brackets the difference of the means from another cell's."""
        mine, theirs = self.mean(figure), other.mean(figure)
        if mine is None or theirs is None or other is self:
            return self.text(figure, digits)
        return f"{self.text(figure, digits)} ({signed(mine - theirs, digits)})"


Cells = dict[tuple[str, str], Cell]
"""By task and variation."""


def load_cells(experiment: str, rows: Path = ROWS, grids: Path = GRIDS) -> Cells:
    """The cells of an experiment, in the order of its grid; rows made with other settings than today's are left out."""
    grid = load_grid(grids / f"{experiment}.yaml")
    return cells_of(grid, read_rows(rows / f"{experiment}.jsonl"))


def cells_of(grid: Grid, rows: Sequence[Row]) -> Cells:
    """The cells of a grid: by the order of its variations, then of its tasks."""
    tasks = list(dict.fromkeys(run.task_name for run in grid.runs))
    cells: Cells = {}
    for task in tasks:
        for variation in grid.variations:
            runs = [run for run in grid.runs if (run.task_name, run.variation_name) == (task, variation)]
            if runs:
                found = [done(run, rows) for run in sorted(runs, key=lambda run: run.seed)]
                number = grid.variations[variation].row
                cells[task, variation] = Cell(variation, task, number, len(runs), tuple(row for row in found if row))
    return cells


def done(run: Run, rows: Sequence[Row]) -> Row | None:
    """The row of a run as the grid has it today."""
    return row_of(rows, run.id, to_dict(configuration(run, Options())))


def signed(value: float, digits: int = 2) -> str:
    """+0.10, −0.46 or 0.00."""
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
