"""The command line of the experiments: `python -m experiments run GRID`, `list GRID`, `merge FILE…`, `results`."""

from __future__ import annotations

import time

STARTED = time.monotonic()  # before anything heavy is imported: the budget counts that too

import argparse  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from experiments import programs  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; its exit code."""
    given = parser().parse_args(arguments)
    return programs.run(lambda: given.do(given))


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="do the remaining runs of a grid within a time budget")
    run.add_argument("grid", type=Path)
    run.add_argument("--minutes", type=float, default=9.5, help="time budget, from the start of the command")
    run.add_argument("--data", type=Path, default=Path("data"), help="folder of the corpora and of prepared/")
    run.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="where models are trained")
    run.add_argument("--rows", type=Path, help="folder of the rows; experiments/rows if left out")
    run.add_argument("--out", type=Path, help="write the new rows to this folder, too")
    run.add_argument("--only", action="append", default=[], help="do runs whose id contains this (repeatable)")
    run.add_argument("--set", action="append", default=[], help="change a setting, as in rela train (repeatable)")
    run.add_argument(
        "--limit", type=programs.at_least(1), help="use only this many sentences of each text, to test the set-up"
    )
    run.add_argument("--commit", default="", help="the commit of the code, if git is not available")
    run.add_argument("--keep-model", type=Path, help="keep copies of the models in half precision here")
    run.add_argument(
        "--resumable", action="store_true", help="start a run that may not fit, and stop it with a checkpoint"
    )
    run.add_argument("--retry", action="store_true", help="repeat runs that failed or have no analysis")
    run.add_argument(
        "--workers", type=programs.at_least(1), default=1, help="number of processes that share the runs and the device"
    )
    run.add_argument("--workers-of", type=int, help=argparse.SUPPRESS)  # one of so many processes,
    run.add_argument("--started", type=float, help=argparse.SUPPRESS)  # whose time counts from here
    run.set_defaults(do=do_run)

    listed = commands.add_parser("list", help="list the finished and the remaining runs of a grid")
    listed.add_argument("grid", type=Path)
    listed.set_defaults(do=do_list)

    merge = commands.add_parser("merge", help="add rows from another machine")
    merge.add_argument("files", type=Path, nargs="+")
    merge.set_defaults(do=do_merge)

    results = commands.add_parser("results", help="rebuild the tables and figures of docs/results*.md from the rows")
    results.set_defaults(do=do_results)
    return top


def do_run(given: argparse.Namespace) -> None:
    from experiments.workers import others

    if not math.isfinite(given.minutes):
        raise ValueError(f"--minutes is {given.minutes}; wanted a time")
    # By default each process has a thread for every core of the machine, of which a container may have few:
    # the analysis of three runs side by side then took minutes where it takes seconds.
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    with others(0 if given.workers_of else given.workers - 1, sys.argv[1:], STARTED):
        run_alone(given)


def run_alone(given: argparse.Namespace) -> None:
    """This process's share of the grid."""
    from experiments.grid import load_grid
    from experiments.rows import ROWS
    from experiments.runner import Options, known_commit, run_grid

    options = Options(
        minutes=given.minutes,
        data=given.data,
        runs=given.runs,
        rows=given.rows or ROWS,
        out=given.out,
        only=given.only,
        overrides=given.set,
        limit=given.limit,
        commit=given.commit or known_commit(),
        keep_model=given.keep_model,
        resumable=given.resumable,
        retry=given.retry,
        workers=given.workers_of or given.workers,
    )
    new = run_grid(load_grid(given.grid), options, given.started or STARTED, lambda text: print(text, flush=True))
    print(f"{len(new)} new rows in {time.monotonic() - STARTED:.0f} s", flush=True)


def do_list(given: argparse.Namespace) -> None:
    from experiments.grid import load_grid
    from experiments.rows import ROWS, read_rows, row_of
    from experiments.runner import Options, configuration, summary
    from rela.config import to_dict

    grid = load_grid(given.grid)
    rows = read_rows(ROWS / f"{grid.experiment}.jsonl")
    for run in grid.runs:
        row = row_of(rows, run.id, to_dict(configuration(run, Options())))
        print(f"{run.id}: {'to do' if row is None else summary(row)}")


def do_merge(given: argparse.Namespace) -> None:
    from experiments.rows import ROWS, check_rows, merge_rows, read_rows

    for file in given.files:
        file.stat()  # no file is no rows elsewhere; here it is a wrong name
        rows = read_rows(file)
        check_rows(rows, str(file))
        for experiment in sorted({row["experiment"] for row in rows}):
            path = ROWS / f"{experiment}.jsonl"
            added = merge_rows(path, [row for row in rows if row["experiment"] == experiment])
            print(f"{path}: {added} new rows")


def do_results(given: argparse.Namespace) -> None:
    from experiments.results import DOCS, PAGES, rebuild

    rebuild()
    for page in PAGES:
        print(DOCS / page)


if __name__ == "__main__":
    sys.exit(main())
