"""Rank a noisy corpus of any size by null rate, log-probability, both or a detector's score; keep the best of it."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import raw_pairs
from rela.filtering.outputs import (
    check_columns,
    kept_paths,
    score_columns,
    summary_path,
    whole_file,
    write_kept,
    write_scores,
)
from rela.filtering.ranking import LOW_IS_GOOD, Criterion, best_first, chosen, rank_values
from rela.filtering.score_corpus import PROBLEMS
from rela.filtering.score_store import ScoreStore

QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True)
class FilterSummary:
    """The scores of a corpus in a few numbers, and how much of it was kept."""

    pairs: int
    problems: dict[str, int]
    """Pairs without scores, by reason."""
    by: str
    kept: int | None
    """None where nothing was asked to be kept."""
    threshold: float | None
    """The score of the last pair kept, in the units of `by`."""
    null_rate: dict[str, float]
    """Quantiles: the score below which so many per cent of the pairs lie."""
    log_prob: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{self.pairs:,} pairs" + "".join(f"; {count:,} {why}" for why, count in self.problems.items())]
        for name, values in (("null rate", self.null_rate), ("log-prob", self.log_prob)):
            lines.append(f"{name:<10}" + "  ".join(f"{q}% {value:.4f}" for q, value in values.items()))
        if self.kept is not None:
            edge = "" if self.threshold is None else f", the last one with {self.by} {self.threshold:.6g}"
            lines.append(f"kept {self.kept:,} pairs{edge}")
        return "\n".join(lines)


def filter_corpus(
    store: ScoreStore,
    source: str | Path,
    target: str | Path,
    out: str | Path,
    criterion: Criterion,
    *,
    ranked: bool = False,
    text: bool = False,
    kept_files: tuple[Path, Path] | None = None,
) -> FilterSummary:
    """Rank the scored pairs; write the scores as TSV, a summary as JSON, and the pairs to keep as two files.

    `ranked` writes the TSV best first, `text` adds both sentences to it. `kept_files` are the source and target file
    for the kept pairs; without it they lie beside `out`.
    """
    check_columns(ranked, text)
    by = criterion.by
    scores = store.read()
    null_rates = scores["null_rate"][scores["problem"] == 0]
    if by in ("null-rate", "both") and len(null_rates) and not null_rates.any():
        warnings.warn("no pair has null attention, so the null rate ranks nothing; rank by log-prob", stacklevel=2)
    goodness = rank_values(scores, by)
    order = best_first(goodness)
    kept = chosen(goodness, order, criterion)
    out = Path(out)
    columns = score_columns(scores, goodness, order, kept, by)
    lines = order if ranked else range(len(scores))
    with whole_file(out) as file:
        write_scores(file, columns, lines, raw_pairs(source, target) if text else None)
    if kept is not None:
        write_kept(kept, source, target, kept_paths(out, kept_files))
    summary = summarise(scores, goodness, by, kept)
    with whole_file(summary_path(out)) as file:
        file.write(json.dumps(asdict(summary), indent=1, allow_nan=False).encode() + b"\n")
    return summary


def summarise(
    scores: NDArray[Any], goodness: NDArray[np.float64], by: str, kept: NDArray[np.bool_] | None
) -> FilterSummary:
    """The summary of scored pairs: quantiles of both scores, problems, and how many pairs were kept."""
    good = scores["problem"] == 0
    quantiles = {
        name: dict(zip(map(str, QUANTILES), np.percentile(scores[name][good], QUANTILES).tolist(), strict=True))
        if good.any()
        else {}
        for name in ("null_rate", "log_prob")
    }
    edge = None
    if kept is not None and kept.any():
        worst = float(goodness[kept].min())
        edge = -worst + 0.0 if by in LOW_IS_GOOD else worst
    problems = {why: int((scores["problem"] == code).sum()) for code, why in enumerate(PROBLEMS) if code}
    return FilterSummary(
        pairs=len(scores),
        problems={why: count for why, count in problems.items() if count},
        by=by,
        kept=None if kept is None else int(kept.sum()),
        threshold=edge,
        null_rate=quantiles["null_rate"],
        log_prob=quantiles["log_prob"],
    )
