"""Rank a noisy corpus of any size by null rate, by log-probability or by both, and keep the best of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import EMPTY, NOT_UTF8, NUL, TOO_LONG, decode_line, raw_pairs
from rela.decoding.translate import PairTooLong, Translator
from rela.files import replacing
from rela.filtering.noise import ranks
from rela.filtering.pair_scores import score_ids
from rela.filtering.score_store import RECORD, ScoreStore
from rela.progress import Progress

BLOCK = 2048
"""Pairs that are scored, stored and, after an interruption, perhaps scored again together."""
ORDERS = ("null-rate", "log-prob", "both")
PROBLEMS = ("", EMPTY, NOT_UTF8, NUL, TOO_LONG, "too long for the model")
"""Why a pair has no scores; such pairs are never kept."""
QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
ENDS = 1 << 20  # bytes of each end of a file that tell it from another
RawPair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class FilterSummary:
    """What a filtered corpus looks like."""

    pairs: int
    problems: dict[str, int]
    """Pairs without scores, by reason."""
    by: str
    kept: int | None
    """None where nothing was asked to be kept."""
    threshold: float | None
    """The score of the last pair kept, in the units of `by`."""
    null_rate: dict[str, float]
    """By per cent of the pairs."""
    log_prob: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{self.pairs:,} pairs" + "".join(f"; {count:,} {why}" for why, count in self.problems.items())]
        for name, values in (("null rate", self.null_rate), ("log-prob", self.log_prob)):
            lines.append(f"{name:<10}" + "  ".join(f"{q}% {value:.4f}" for q, value in values.items()))
        if self.kept is not None:
            edge = "" if self.threshold is None else f", the last one with {self.by} {self.threshold:.6g}"
            lines.append(f"kept {self.kept:,} pairs{edge}")
        return "\n".join(lines)


def score_corpus(
    translator: Translator,
    source: str | Path,
    target: str | Path,
    folder: Path,
    *,
    rank: int = 0,
    world: int = 1,
    block: int = BLOCK,
    progress: Progress | None = None,
) -> ScoreStore:
    """Score this process' share of the blocks that are not scored yet, into `folder`.

    Block i belongs to process i mod `world`. The scores of a pair do not depend on the pairs beside it, so neither
    an interruption nor the number of processes leaves a trace in them.
    """
    if "-" in (str(source), str(target)):
        raise ValueError("the corpus is read more than once, so it cannot come from the standard input")
    job = {"format": 1, "block": block, "model": fingerprint(translator),
           "source": file_fingerprint(source), "target": file_fingerprint(target)}  # fmt: skip
    store = ScoreStore(folder, job)
    done = store.finished()
    seen = 0
    with store.writer(rank) as writer:
        for number, pairs in enumerate(blocks(source, target, block)):
            if number not in done and number % world == rank:
                writer.add(number, score_block(translator, pairs))
            seen += len(pairs)
            if progress is not None:
                progress("scored", seen, None)
    return store


def score_block(translator: Translator, pairs: list[RawPair]) -> NDArray[Any]:
    """The records of consecutive lines."""
    scores = np.zeros(len(pairs), RECORD)
    scores["null_rate"] = scores["log_prob"] = np.nan
    ids, places = [], []
    for place, raw in enumerate(pairs):
        encoded, problem = encode(translator, raw)
        scores["problem"][place] = PROBLEMS.index(problem)
        if not problem:
            ids.append(encoded)
            places.append(place)
    for place, score in zip(places, score_ids(translator, ids), strict=True):
        scores[place] = (score.null_rate, score.log_prob, 0)
    return scores


def encode(translator: Translator, raw: RawPair) -> tuple[tuple[list[int], list[int]], str]:
    """Subword ids of a pair and what is wrong with it."""
    sides = [decode_line(side) for side in raw]
    found = [problem for _, problem in sides if problem]
    if found:
        return ([], []), min(found, key=lambda problem: problem == EMPTY)  # what is worse than empty comes first
    try:
        return translator.encode_pair(sides[0][0], sides[1][0]), ""
    except PairTooLong:
        return ([], []), PROBLEMS[-1]


def filter_corpus(
    store: ScoreStore,
    source: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    by: str = "null-rate",
    keep: float | None = None,
    threshold: float | None = None,
    ranked: bool = False,
    text: bool = False,
    kept_files: tuple[Path, Path] | None = None,
) -> FilterSummary:
    """Rank the scored pairs; write the scores as TSV, a summary as JSON, and the pairs to keep as two files.

    `by` is "null-rate" (low is good), "log-prob" (high is good) or "both": the mean of a pair's places in the two
    orders, as a share of the pairs, 1 the best and equal scores sharing a place. `keep` is the share of the scored
    pairs to keep (of equals the earlier), `threshold` the worst score to keep.
    """
    check_order(by, keep, threshold, ranked, text)
    scores = store.read()
    null_rates = scores["null_rate"][scores["problem"] == 0]
    if by != "log-prob" and len(null_rates) and not null_rates.any():
        warnings.warn("no pair has null attention, so the null rate ranks nothing; rank by log-prob", stacklevel=2)
    goodness = rank_values(scores, by)
    order = best_first(goodness)
    kept = chosen(goodness, order, by, keep, threshold)
    out = Path(out)
    rows = score_rows(scores, goodness, order, kept, by)
    lines = order if ranked else range(len(scores))
    with whole_file(out) as file:
        write_scores(file, rows, lines, raw_pairs(source, target) if text else None)
    if kept is not None:
        write_kept(kept, source, target, kept_paths(out, kept_files))
    summary = summarise(scores, goodness, by, kept)
    with whole_file(summary_path(out)) as file:
        file.write(json.dumps(asdict(summary), indent=1).encode() + b"\n")
    return summary


def check_order(by: str, keep: float | None, threshold: float | None, ranked: bool, text: bool) -> None:
    """Refuse what makes no sense before the corpus is scored."""
    if by not in ORDERS:
        raise ValueError(f"by is {by!r}; wanted one of {', '.join(ORDERS)}")
    if keep is not None and threshold is not None:
        raise ValueError("both a share to keep and a threshold are given; wanted one of them")
    if keep is not None and not 0 <= keep <= 1:
        raise ValueError(f"keep is {keep}; wanted a share from 0 to 1")
    if threshold is not None and math.isnan(threshold):
        raise ValueError("the threshold is not a number")
    if ranked and text:
        raise ValueError("the text can only be written in the order of the corpus, not ranked; wanted one of them")


def kept_paths(out: Path, kept_files: tuple[Path, Path] | None) -> tuple[Path, Path]:
    """Where the kept pairs go: beside the scores, unless said."""
    return kept_files or (out.with_suffix(".kept.source"), out.with_suffix(".kept.target"))


def check_outputs(source: str | Path, target: str | Path, outputs: Sequence[Path]) -> None:
    """Refuse to write over the corpus, over a folder, or two things into one file, before the corpus is scored."""
    places = [path.resolve() for path in outputs]
    for path, place in zip(outputs, places, strict=True):
        if path.is_dir():
            raise ValueError(f"{path} is a folder; wanted a file to write")
        if place in (Path(source).resolve(), Path(target).resolve()):
            raise ValueError(f"{path} is the corpus itself; wanted another file to write")
        if places.count(place) > 1:
            raise ValueError(f"{path} would be written twice; wanted a file of its own for each output")


def rank_values(scores: NDArray[Any], by: str) -> NDArray[np.float64]:
    """A number for each pair, high is good: −null rate, log-probability, or the mean of both places; NaN for a problem."""
    good = scores["problem"] == 0
    if by == "null-rate":
        return np.where(good, -scores["null_rate"], np.nan)
    if by == "log-prob":
        return np.where(good, scores["log_prob"], np.nan)
    values = np.full(len(scores), np.nan)
    count = max(int(good.sum()), 1)
    values[good] = (ranks(-scores["null_rate"][good]) + ranks(scores["log_prob"][good])) / (2 * count)
    return values


def best_first(goodness: NDArray[np.float64]) -> NDArray[np.int64]:
    """Lines that have a score, the best first and equals in the order of the corpus."""
    order = np.argsort(-goodness, kind="stable")
    return order[: int((~np.isnan(goodness)).sum())]  # NaN sorts last


def chosen(
    goodness: NDArray[np.float64], order: NDArray[np.int64], by: str, keep: float | None, threshold: float | None
) -> NDArray[np.bool_] | None:
    """True for each line to keep; None where nothing was asked."""
    if keep is None and threshold is None:
        return None
    kept = np.zeros(len(goodness), bool)
    if keep is not None:
        kept[order[: math.floor(keep * len(order) + 0.5)]] = True
        return kept
    kept[order] = goodness[order] >= (-threshold if by == "null-rate" else threshold)  # type: ignore[operator]
    return kept


def score_rows(
    scores: NDArray[Any],
    goodness: NDArray[np.float64],
    order: NDArray[np.int64],
    kept: NDArray[np.bool_] | None,
    by: str,
) -> dict[str, Any]:
    """The columns of the TSV: a function from a line to the text of its field."""
    place = np.zeros(len(scores), np.int64)
    place[order] = np.arange(1, len(order) + 1)
    columns: dict[str, Any] = {
        "line": lambda i: str(i + 1),
        "null_rate": lambda i: number(scores["null_rate"][i]),
        "log_prob": lambda i: number(scores["log_prob"][i]),
    }
    if by == "both":
        columns["both"] = lambda i: number(goodness[i])
    columns["rank"] = lambda i: str(place[i]) if place[i] else ""
    if kept is not None:
        columns["kept"] = lambda i: str(int(kept[i]))
    columns["problem"] = lambda i: PROBLEMS[scores["problem"][i]]
    return columns


def number(value: Any) -> str:
    """A score as text that reads back as the same number; nothing for NaN."""
    return "" if np.isnan(value) else repr(float(value))


def write_scores(
    file: IO[bytes], columns: dict[str, Any], lines: Any, texts: Iterator[tuple[int, bytes | None, bytes | None]] | None
) -> None:
    """Header and rows; a tab in the text becomes a space."""
    file.write("\t".join([*columns, *(["source", "target"] if texts is not None else [])]).encode() + b"\n")
    for line in lines:
        row = "\t".join(field(line) for field in columns.values()).encode()
        if texts is not None:
            _, *sides = next(texts)
            row = b"\t".join([row, *((side or b"").replace(b"\t", b" ") for side in sides)])
        file.write(row + b"\n")


def write_kept(kept: NDArray[np.bool_], source: str | Path, target: str | Path, files: tuple[Path, Path]) -> None:
    """The pairs to keep, byte for byte and in the order of the corpus."""
    with whole_file(files[0]) as sources, whole_file(files[1]) as targets:
        for (_, left, right), wanted in zip(raw_pairs(source, target), kept.tolist(), strict=True):
            if wanted:
                sources.write((left or b"") + b"\n")
                targets.write((right or b"") + b"\n")


def summarise(
    scores: NDArray[Any], goodness: NDArray[np.float64], by: str, kept: NDArray[np.bool_] | None
) -> FilterSummary:
    """Quantiles of both scores, problems, and what was kept."""
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
        edge = -worst + 0.0 if by == "null-rate" else worst
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


def blocks(source: str | Path, target: str | Path, size: int) -> Iterator[list[RawPair]]:
    """The lines of both files, some at a time and not decoded."""
    stream = ((left, right) for _, left, right in raw_pairs(source, target))
    while block := list(islice(stream, size)):
        yield block


def fingerprint(translator: Translator) -> str:
    """What tells two models apart: their weights, attention kinds and subwords."""
    digest = hashlib.sha256(translator.subwords.model)
    digest.update(repr(translator.config.model).encode())
    for name, tensor in sorted(translator.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def file_fingerprint(path: str | Path) -> str:
    """What tells two files apart without reading them whole: their size and both ends."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(max(size - ENDS, 0))
        digest.update(file.read(ENDS))
    return f"{size}:{digest.hexdigest()}"


def parts_folder(out: str | Path) -> Path:
    """Where the scores of `out` are collected; kept afterwards, so that another threshold costs nothing."""
    return Path(f"{out}.parts")


def summary_path(out: Path) -> Path:
    return out.with_suffix(".summary.json")


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, open(partial, "wb") as file:
        yield file
