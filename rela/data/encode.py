"""The three passes over the text of a preparation: count usable pairs, sample lines, encode pairs to shards.

None holds the text in memory.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rela.config import DataConfig
from rela.data.corpus import CorpusError, read_pairs
from rela.data.inputs import Corpus
from rela.data.shards import ShardWriter
from rela.data.subwords import Subwords
from rela.progress import Progress

CHUNK_PAIRS, CHUNK_CHARACTERS = 8192, 1 << 22
"""Pairs are encoded in chunks that end at whichever comes first, so that long lines cannot fill the memory."""

TOO_LONG = "longer than max_tokens"
UNEVEN = "length ratio over max_ratio"


@dataclass(frozen=True)
class CountedCorpus:
    """A corpus, the number of its usable pairs, and why the others are not usable."""

    corpus: Corpus
    usable: int
    dropped: Counter[str]


def count_pairs(corpus: Corpus, on_bad_line: str, progress: Progress) -> CountedCorpus:
    """The corpus with its number of usable pairs; a CorpusError if it has none."""
    dropped = Counter[str]()
    report = partial(progress, "counting pairs", total=None)
    kept = sum(1 for _ in read_pairs(corpus.source, corpus.target, on_bad_line, dropped, report))
    if kept == 0:
        reasons = in_words(dropped) or "no lines"
        raise CorpusError(f"{corpus.source} and {corpus.target} hold no usable pair: {reasons}")
    progress("counting pairs", kept, kept)
    return CountedCorpus(corpus, kept, dropped)


def sample_lines(corpora: list[Corpus], usable: int, config: DataConfig, progress: Progress) -> Iterator[str]:
    """Both lines of pairs drawn without replacement from all corpora, in one pass (Knuth's Algorithm S)."""
    generator = random.Random(config.seed)
    wanted = min(usable, max(1, config.vocabulary_sample // 2))
    stage, size, left = "learning the vocabulary", wanted, usable
    for corpus in corpora:
        for source, target in read_pairs(corpus.source, corpus.target):
            if generator.random() * left < wanted:
                yield source
                yield target
                wanted -= 1
                if (size - wanted) % CHUNK_PAIRS == 0:
                    progress(stage, size - wanted, size)
                if wanted == 0:
                    progress(stage, size, size)
                    return
            left -= 1


def encode_split(
    corpora: list[CountedCorpus],
    subwords: Subwords,
    writer: ShardWriter,
    config: DataConfig,
    threads: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Write the pairs of one split to shards drawn at random; what `meta.json` says about the split."""
    usable = sum(counted.usable for counted in corpora)
    generator = np.random.default_rng(config.seed % (1 << 63))
    dropped = sum((counted.dropped for counted in corpora), Counter[str]())
    workers = threads or os.cpu_count() or 1
    done = 0
    for number, counted in enumerate(corpora):
        for chunk in chunks(read_pairs(counted.corpus.source, counted.corpus.target)):
            sources, targets = zip(*chunk, strict=True)
            ids = subwords.source.encode_batch(sources, workers), subwords.encode_batch(targets, workers)
            pairs = list(keep(zip(*ids, strict=True), config.max_tokens, config.max_ratio, dropped))
            writer.add(pairs, generator.integers(writer.shards, size=len(pairs)), number)
            done += len(chunk)
            progress(f"encoding {writer.split}", done, usable)
    facts = writer.facts()
    if not facts["pairs"]:
        raise CorpusError(f"no pair of the {writer.split} split is left: {in_words(dropped)}")
    read = usable + sum(counted.dropped.total() for counted in corpora)
    weights = [counted.corpus.weight for counted in corpora]
    return {"read": read, **facts, "dropped": dict(dropped), "weights": weights}


def keep(
    pairs: Iterable[tuple[list[int], list[int]]], max_tokens: int, max_ratio: float, dropped: Counter[str]
) -> Iterator[tuple[list[int], list[int]]]:
    """The encoded pairs that the configuration wants; the others are counted by reason."""
    for source, target in pairs:
        shorter, longer = sorted((len(source), len(target)))
        if longer > max_tokens:
            dropped[TOO_LONG] += 1
        elif max_ratio and longer > max_ratio * shorter:
            dropped[UNEVEN] += 1
        else:
            yield source, target


def chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Pairs in lists of at most CHUNK_PAIRS and about CHUNK_CHARACTERS."""
    chunk: list[tuple[str, str]] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def in_words(dropped: Counter[str]) -> str:
    """How many lines were dropped for which reason."""
    return ", ".join(f"{number} {reason}" for reason, number in dropped.items())
