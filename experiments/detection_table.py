"""How well scores find bad translations: AUROC with confidence intervals, on human labels and on synthetic noise.

    python -m experiments.detection_table --forward runs/de-en/model --reverse runs/en-de/model \\
        --labelled annotated.tsv.xz --source valid.de --target valid.en --output rows.json

The models are calibrated first (`rela check --calibrate`), on trusted pairs and synthetic noise only. A labelled file
has a header with `source`, `translation` and columns of 0 and 1. `--bad NAME=COLUMN,COLUMN` says which rows are bad
(those with a 1 in one of the columns); all others are good. The default is any hallucination, fully detached, and
omission.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import programs
from rela.data.corpus import read_lines, read_pairs
from rela.decoding.translate import Translator
from rela.files import write_text
from rela.filtering.check import Checker, PairCheck
from rela.filtering.detection import auroc, auroc_interval
from rela.filtering.noise import ALL_NOISES, make_noise

BAD = ("any=repetition,strongly_detached,fully_detached", "fully detached=fully_detached", "omission=omission")


def read_labelled(path: Path) -> list[dict[str, str]]:
    """The rows of a table of tab-separated columns, compressed or not."""
    return list(csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE))


def badness(checks: Sequence[PairCheck]) -> dict[str, NDArray[np.float64]]:
    """Every score of checked pairs, high is bad; a pair that cannot be read counts as the worst."""
    reverse = [check.reverse for check in checks]
    columns: dict[str, list[float | None]] = {
        "score": [check.score for check in checks],
        "log_prob": [None if check.log_prob is None else -check.log_prob for check in checks],
        "contrast": [None if check.contrast is None else -check.contrast for check in checks],
        "null_rate": [check.null_rate for check in checks],
    }
    if any(reverse):
        columns["reverse log_prob"] = [None if one is None else -one["log_prob"] for one in reverse]
        columns["reverse contrast"] = [None if one is None else -one["contrast"] for one in reverse]
        columns["reverse null_rate"] = [None if one is None else one["null_rate"] for one in reverse]
    return {name: np.array([np.inf if x is None else x for x in values]) for name, values in columns.items()}


def rows_of(what: str, values: dict[str, NDArray[np.float64]], bad: NDArray[np.bool_], resamples: int) -> list[Any]:
    """AUROC of every score at telling bad from good."""
    rows = []
    for name, scores in values.items():
        low, high = auroc_interval(scores[~bad], scores[bad], resamples)
        found = auroc(scores[~bad], scores[bad])
        rows.append(
            {
                "what": what,
                "by": name,
                "auroc": found,
                "low": low,
                "high": high,
                "bad": int(bad.sum()),
                "good": int((~bad).sum()),
            }
        )
    return rows


def labelled_rows(checker: Checker, path: Path, bad: Sequence[str], resamples: int) -> list[dict[str, Any]]:
    table = read_labelled(path)
    for column in ("source", "translation"):
        if not table or any(row.get(column) is None for row in table):
            raise ValueError(f"{path} has no {column} in some row, or no rows; wanted a header and rows under it")
    for column in sorted({column for text in bad for column in text.partition("=")[2].split(",")}):
        if other := {str(row.get(column)) for row in table} - {"0", "1"}:
            raise SystemExit(f"{path} has {min(other)!r} in the column {column!r}; wanted 0 and 1")
    checks = list(checker.check((row["source"], row["translation"]) for row in table))
    values = badness(checks)
    rows = []
    for name, columns in (text.split("=", 1) for text in bad):
        wanted = columns.split(",")
        marked = np.array([any(row[column] == "1" for column in wanted) for row in table])
        rows += rows_of(f"labelled: {name}", values, marked, resamples)
    return rows


def noise_rows(checker: Checker, pairs: list[tuple[str, str]], seed: int, resamples: int) -> list[dict[str, Any]]:
    clean = badness(list(checker.check(pairs)))
    rows = []
    for kind in ALL_NOISES:
        noisy = badness(list(checker.check(make_noise(pairs, kind, seed))))
        values = {name: np.concatenate([clean[name], noisy[name]]) for name in clean}
        bad = np.repeat([False, True], len(pairs))
        rows += rows_of(f"noise: {kind}", values, bad, resamples)
    return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forward", type=Path, required=True)
    parser.add_argument("--reverse", type=Path)
    parser.add_argument("--labelled", type=Path)
    parser.add_argument("--bad", action="append", type=programs.named, metavar="NAME=COLUMN,COLUMN")
    parser.add_argument("--source", type=Path, help="text from which noise is made; must not be the calibration text")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--pairs", type=programs.at_least(1), default=1000)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--resamples", type=programs.at_least(1), default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    if (options.source is None) != (options.target is None):
        parser.error("--source and --target go together")
    if not (options.labelled or options.source):
        parser.error("there is nothing to judge; wanted --labelled, or --source and --target")

    programs.check_output(options.output)
    reverse = None if options.reverse is None else Translator.load(options.reverse, options.device)
    checker = Checker(Translator.load(options.forward, options.device), reverse)
    if checker.detector is None:
        raise SystemExit(f"{options.forward} is not calibrated for these models; run rela check --calibrate first")
    started, rows = time.perf_counter(), []
    if options.labelled:
        rows += labelled_rows(checker, options.labelled, options.bad or BAD, options.resamples)
    if options.source:
        pairs = list(islice(read_pairs(options.source, options.target, "skip"), options.pairs))
        rows += noise_rows(checker, pairs, options.seed, options.resamples)
    for row in rows:
        print(f"{row['auroc']:.3f} ({row['low']:.3f} to {row['high']:.3f})  {row['what']} by {row['by']}")
    print(f"{time.perf_counter() - started:.0f} s")
    if options.output:
        write_text(options.output, json.dumps({"fitted_on": checker.detector.trusted, "rows": rows}, indent=1))
    return rows


if __name__ == "__main__":
    sys.exit(programs.run(main))
