"""A page with a sample of the best and worst pairs of a filtered corpus, to judge by eye as the paper does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import raw_pairs
from rela.filtering.filter import FilterSummary
from rela.filtering.outputs import whole_file
from rela.filtering.ranking import best_first, rank_values
from rela.filtering.score_store import ScoreStore
from rela.report.web_page import heading, page, paragraph, table

POOL = 10_000
"""The paper samples among its best and worst ten thousand; here at most a tenth of the pairs."""
LONGEST = 600
"""Characters of a sentence that are shown."""


def write_filter_page(
    store: ScoreStore,
    source: str | Path,
    target: str | Path,
    path: str | Path,
    summary: FilterSummary,
    sample: int = 50,
    seed: int = 1,
) -> None:
    """Write the page: `sample` pairs from the best of the corpus and as many from the worst, drawn by seed."""
    scores = store.read()
    order = best_first(rank_values(scores, summary.by))
    best, worst = draw(order, sample, seed)
    texts = fetch_lines(source, target, {*best, *worst})
    quantiles = [
        {"quantile, %": q, "null rate": summary.null_rate[q], "log-prob": summary.log_prob[q]}
        for q in summary.null_rate
    ]
    parts = [
        paragraph(
            f"{summary.pairs:,} pairs ranked by {summary.by}. Below are {len(best)} drawn from the best and "
            f"{len(worst)} from the worst of them, in order of rank. Null rate: the share of target tokens for which a "
            "head of cross attention looks at nothing, over all layers and heads; low is good. Log-prob: of the "
            "target, for each subword; high is good."
        ),
        table(quantiles),
        heading("Best"),
        pair_table(best, scores, texts),
        heading("Worst"),
        pair_table(worst, scores, texts),
    ]
    with whole_file(path) as file:
        file.write(page("Best and worst pairs", parts).encode())


def draw(order: NDArray[np.int64], sample: int, seed: int) -> tuple[list[int], list[int]]:
    """Lines from the top and from the bottom of an order, each in order."""
    pool = max(min(POOL, len(order) // 10), min(sample, len(order) // 2))
    random = Random(seed)
    top = sorted(random.sample(range(pool), min(sample, pool)))
    bottom = sorted(random.sample(range(len(order) - pool, len(order)), min(sample, pool)))
    return order[top].tolist(), order[bottom].tolist()


def fetch_lines(source: str | Path, target: str | Path, wanted: set[int]) -> dict[int, tuple[str, str]]:
    """The text of some lines, counted from 0, by one pass over the corpus."""
    found: dict[int, tuple[str, str]] = {}
    for number, left, right in raw_pairs(source, target) if wanted else ():
        if number - 1 in wanted:
            found[number - 1] = (shorten(left), shorten(right))
            if len(found) == len(wanted):
                break
    return found


def shorten(raw: bytes | None) -> str:
    text = (raw or b"").decode("utf-8", "replace")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def pair_table(lines: Iterable[int], scores: NDArray[Any], texts: dict[int, tuple[str, str]]) -> str:
    """Scores and text of some lines as a table."""
    rows = [
        {
            "line": line + 1,
            "null rate": float(scores["null_rate"][line]),
            "log-prob": float(scores["log_prob"][line]),
            "source": texts[line][0],
            "target": texts[line][1],
        }
        for line in lines
    ]
    return table(rows, text=("source", "target"))
