"""Scores of every pair of a corpus of any size, block by block, by any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import EMPTY, NOT_UTF8, NUL, TOO_LONG, decode_line, raw_pairs
from rela.decoding.even_packing import IdPair
from rela.decoding.translate import PairTooLong, Translator
from rela.filtering.combined_scorer import CombinedScorer
from rela.filtering.detector import TOO_LONG_FOR_MODEL
from rela.filtering.fingerprint import file_fingerprint, model_fingerprint
from rela.filtering.pair_scores import score_ids
from rela.filtering.score_store import RECORD, ScoreStore
from rela.progress import Progress

BLOCK = 2048
"""Pairs that are scored and stored together; after an interruption a block is scored again from its beginning."""
PROBLEMS = ("", EMPTY, NOT_UTF8, NUL, TOO_LONG, TOO_LONG_FOR_MODEL)
"""Why a pair has no scores; such pairs are never kept."""
RawPair = tuple[bytes | None, bytes | None]


def score_corpus(
    scorer: Translator | CombinedScorer,
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

    A `CombinedScorer` also gives each pair a combined score, a `Translator` does not.
    Block i belongs to process i mod `world`. The scores of a pair do not depend on the pairs beside it, so neither
    an interruption nor the number of processes leaves a trace in them.
    """
    store = open_store(scorer, source, target, folder, block)
    combined = scorer if isinstance(scorer, CombinedScorer) else None
    translator = scorer.forward if isinstance(scorer, CombinedScorer) else scorer
    done = store.finished()
    seen = 0
    with store.writer(rank) as writer:
        for number, pairs in enumerate(blocks(source, target, block)):
            if number not in done and number % world == rank:
                writer.add(number, score_block(translator, pairs, combined))
            seen += len(pairs)
            if progress is not None:
                progress("scored", seen, None)
    return store


def open_store(
    scorer: Translator | CombinedScorer, source: str | Path, target: str | Path, folder: Path, block: int = BLOCK
) -> ScoreStore:
    """The scores of a corpus by a model or a combined scorer, as far as they are in `folder`."""
    if any(str(path) == "-" or Path(path).is_fifo() for path in (source, target)):
        raise ValueError("the corpus is read more than once, so it cannot come from the standard input or a pipe")
    combined = scorer if isinstance(scorer, CombinedScorer) else None
    job = {
        "format": 2,
        "block": block,
        "model": model_fingerprint(scorer.forward if isinstance(scorer, CombinedScorer) else scorer),
        "source": file_fingerprint(source),
        "target": file_fingerprint(target),
        **({} if combined is None else combined.fingerprint),
    }
    return ScoreStore(folder, job)


def score_block(translator: Translator, pairs: list[RawPair], combined: CombinedScorer | None = None) -> NDArray[Any]:
    """The records of consecutive lines."""
    scores = np.zeros(len(pairs), RECORD)
    scores["null_rate"] = scores["log_prob"] = scores["score"] = np.nan
    ids, texts, scored = [], [], []
    for i, raw in enumerate(pairs):
        encoded, problem = encode(translator, raw)
        text = (decode_line(raw[0])[0], decode_line(raw[1])[0])
        if not problem and combined is not None and not combined.can_read(text):
            problem = TOO_LONG_FOR_MODEL
        scores["problem"][i] = PROBLEMS.index(problem)
        if not problem:
            ids.append(encoded)
            texts.append(text)
            scored.append(i)
    if combined is not None:
        scores[scored] = [(*found, 0) for found in combined.scores(texts)]
        return scores
    for i, score in zip(scored, score_ids(translator, ids), strict=True):
        scores[i] = (score.null_rate, score.log_prob, np.nan, 0)
    return scores


def encode(translator: Translator, raw: RawPair) -> tuple[IdPair, str]:
    """Subword ids of a pair and what is wrong with it."""
    sides = [decode_line(side) for side in raw]
    found = [problem for _, problem in sides if problem]
    if found:
        return ([], []), min(found, key=lambda problem: problem == EMPTY)  # what is worse than empty comes first
    try:
        return translator.encode_pair(sides[0][0], sides[1][0]), ""
    except PairTooLong:
        return ([], []), TOO_LONG_FOR_MODEL


def blocks(source: str | Path, target: str | Path, size: int) -> Iterator[list[RawPair]]:
    """The lines of both files, some at a time and not decoded."""
    stream = ((left, right) for _, left, right in raw_pairs(source, target))
    while block := list(islice(stream, size)):
        yield block
