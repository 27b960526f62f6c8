"""From raw text to subword ids on disk, in three passes over the text that never hold it in memory.

1. Count the usable pairs and find what is wrong with the files before any time is spent on them.
2. Learn the joint vocabulary from a uniform sample of known size.
3. Encode; each training pair goes to a shard drawn at random, so that training may shuffle the shards and
   the pairs inside one shard, and has then shuffled the corpus.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rela.config import CorpusConfig, DataConfig
from rela.data.corpus import CorpusError, raw_lines, raw_pairs, read_pairs
from rela.data.shards import FORMAT, IDS, META, VOCABULARY, ShardWriter, read_meta
from rela.data.subwords import Subwords, train_subwords
from rela.files import lock
from rela.progress import Progress, no_progress

"""Called with a stage in words, how many pairs of it are done, and of how many (None: not known yet)."""

CHUNK_PAIRS, CHUNK_CHARACTERS = 8192, 1 << 22
"""Pairs are encoded in chunks that end at whichever comes first, so that long lines cannot fill the memory."""

SETTINGS = ("vocabulary_size", "vocabulary_sample", "character_coverage", "max_tokens", "max_ratio", "on_bad_line",
            "shard_pairs", "seed")  # fmt: skip
TOO_LONG = "longer than max_tokens"
UNEVEN = "length ratio over max_ratio"


@dataclass(frozen=True)
class SplitReport:
    """What became of one split: pairs read, kept and dropped by reason; tokens without BOS and EOS."""

    read: int
    pairs: int
    source_tokens: int
    target_tokens: int
    longest_source: int
    longest_target: int
    shards: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class PreparationReport:
    """What `prepare` did, or found done."""

    directory: Path
    vocabulary_size: int
    splits: dict[str, SplitReport]
    reused: bool
    seconds: float

    def summary(self) -> str:
        """The report in a few lines for people."""
        done = "found complete" if self.reused else f"prepared in {self.seconds:.1f} s"
        lines = [f"{self.directory}: {done}, vocabulary of {self.vocabulary_size}"]
        for name, split in self.splits.items():
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in split.dropped.items()) or "none"
            lines.append(f"{name}: {split.pairs:,} of {split.read:,} pairs, {split.source_tokens:,} source and "
                         f"{split.target_tokens:,} target tokens; dropped: {dropped}")  # fmt: skip
        return "\n".join(lines)


@dataclass(frozen=True)
class Corpus:
    """One parallel corpus of a split, its paths resolved."""

    split: str
    source: Path
    target: Path
    weight: float


def prepare(
    config: DataConfig,
    progress: Progress | None = None,
    *,
    force: bool = False,
    subwords: Subwords | None = None,
    threads: int | None = None,
) -> PreparationReport:
    """Write the vocabulary and the id shards of a configuration to its directory, or find them there.

    A finished directory made with the same settings and the same text is reused; one made with others is refused
    unless `force`; what an interrupted run left is thrown away. With `subwords`, or a model file named in the
    configuration, no vocabulary is learnt.
    """
    started = time.monotonic()
    if not config.train:
        raise ValueError("data.train is empty; wanted at least one corpus")
    if subwords is None and config.subwords:
        subwords = Subwords.load(Path(config.root) / config.subwords)
    if subwords is not None and subwords.size != config.vocabulary_size:
        raise ValueError(f"vocabulary_size is {config.vocabulary_size}, but the given vocabulary has {subwords.size}")
    tell = progress or no_progress
    directory = Path(config.directory)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory), empty_folder(directory / ".partial") as partial:
        corpora = list(find_corpora(config, partial))
        wanted = {name: getattr(config, name) for name in SETTINGS}
        wanted["subwords"] = subwords.sha256 if subwords else None
        if meta := finished(directory, force):
            difference = differing(meta, wanted, corpora)
            if difference is None:
                return report(directory, meta, reused=True, seconds=time.monotonic() - started)
            if not force:
                raise ValueError(
                    f"{directory} was prepared otherwise: {difference}; choose another directory, or force"
                )
        counts = [count(corpus, config.on_bad_line, tell) for corpus in corpora]
        usable = sum(kept for corpus, (kept, _) in zip(corpora, counts, strict=True) if corpus.split == "train")
        if subwords is None:
            sample = sample_lines([c for c in corpora if c.split == "train"], usable, config, tell)
            subwords = train_subwords(sample, config.vocabulary_size, seed=config.seed,
                                      character_coverage=config.character_coverage)  # fmt: skip
        subwords.save(partial / VOCABULARY)
        (partial / IDS).mkdir()
        splits = {}
        for split in dict.fromkeys(corpus.split for corpus in corpora):
            chosen = [(corpus, *found) for corpus, found in zip(corpora, counts, strict=True) if corpus.split == split]
            splits[split] = encode_split(split, chosen, subwords, config, partial / IDS, threads, tell)
        meta = {
            "format": FORMAT,
            "languages": [config.source_language, config.target_language],
            "settings": wanted,
            "inputs": [describe(corpus) for corpus in corpora],
            "vocabulary": {"size": subwords.size, "sha256": subwords.sha256},
            "splits": splits,
        }
        install(partial, directory, meta)
    return report(directory, meta, reused=False, seconds=time.monotonic() - started)


def find_corpora(config: DataConfig, partial: Path) -> Iterator[Corpus]:
    """The corpora of every split; text from the standard input is stored first, because it is read three times."""
    splits: list[tuple[str, CorpusConfig]] = [("train", corpus) for corpus in config.train]
    splits += [(name, corpus) for name, corpus in (("valid", config.valid), ("test", config.test)) if corpus]
    if sum("-" in (corpus.source, corpus.target) for _, corpus in splits) > 1:
        raise ValueError('more than one corpus is "-"; the standard input can be read once')
    for split, corpus in splits:
        source, target = (Path(config.root) / name for name in (corpus.source, corpus.target))
        if corpus.source == corpus.target == "-":
            source, target = partial / "stdin-source.zst", partial / "stdin-target.zst"
            spool(((left, right) for _, left, right in raw_pairs("-", "-")), [source, target])
        elif corpus.source == "-":
            source = partial / "stdin.zst"
            spool(((line,) for line in stdin_lines()), [source])
        elif corpus.target == "-":
            target = partial / "stdin.zst"
            spool(((line,) for line in stdin_lines()), [target])
        yield Corpus(split, source, target, corpus.weight)


def stdin_lines() -> Iterator[bytes | None]:
    return (raw for _, raw in raw_lines("-"))


def spool(rows: Iterable[tuple[bytes | None, ...]], paths: list[Path]) -> None:
    """Write the columns of rows to compressed files; a line too long to hold becomes an empty one."""
    import zstandard

    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(zstandard.open(path, "wb")) for path in paths]
        for row in rows:
            for file, raw in zip(files, row, strict=True):
                file.write((raw or b"") + b"\n")


def count(corpus: Corpus, on_bad_line: str, tell: Progress) -> tuple[int, Counter[str]]:
    """How many pairs of a corpus are usable, and why the others are not."""
    kept, dropped = 0, Counter[str]()
    for kept, _ in enumerate(read_pairs(corpus.source, corpus.target, on_bad_line, dropped), start=1):
        if kept % CHUNK_PAIRS == 0:
            tell("counting pairs", kept, None)
    if kept == 0:
        reasons = ", ".join(f"{number} {reason}" for reason, number in dropped.items()) or "no lines"
        raise CorpusError(f"{corpus.source} and {corpus.target} hold no usable pair: {reasons}")
    tell("counting pairs", kept, kept)
    return kept, dropped


def sample_lines(corpora: list[Corpus], usable: int, config: DataConfig, tell: Progress) -> Iterator[str]:
    """Both lines of pairs drawn without replacement from all corpora, in one pass and no memory (Knuth's Algorithm S)."""
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
                    tell(stage, size - wanted, size)
                if wanted == 0:
                    tell(stage, size, size)
                    return
            left -= 1


def encode_split(
    split: str,
    corpora: list[tuple[Corpus, int, Counter[str]]],
    subwords: Subwords,
    config: DataConfig,
    folder: Path,
    threads: int | None,
    tell: Progress,
) -> dict[str, Any]:
    """Write the shards of one split; valid and test keep the order of their files, in one shard."""
    usable = sum(kept for _, kept, _ in corpora)
    shards = -(-usable // config.shard_pairs) if split == "train" else 1
    writer = ShardWriter(folder, split, shards, subwords.size)
    generator = np.random.default_rng(config.seed % (1 << 63))
    dropped = sum((counts for _, _, counts in corpora), Counter[str]())
    done = 0
    for number, (corpus, _, _) in enumerate(corpora):
        for chunk in chunks(read_pairs(corpus.source, corpus.target)):
            sources, targets = zip(*chunk, strict=True)
            workers = threads or os.cpu_count() or 1
            encoded = zip(subwords.encode_batch(sources, workers), subwords.encode_batch(targets, workers), strict=True)
            pairs = list(keep(encoded, config.max_tokens, config.max_ratio, dropped))
            writer.add(pairs, generator.integers(shards, size=len(pairs)), number)
            done += len(chunk)
            tell(f"encoding {split}", done, usable)
    facts = writer.facts()
    if not facts["pairs"]:
        reasons = ", ".join(f"{number} {reason}" for reason, number in dropped.items())
        raise CorpusError(f"no pair of the {split} split is left: {reasons}")
    read = usable + sum(counts.total() for _, _, counts in corpora)
    return {"read": read, **facts, "dropped": dict(dropped), "weights": [corpus.weight for corpus, _, _ in corpora]}


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


def describe(corpus: Corpus) -> dict[str, Any]:
    """What tells whether a corpus is the one that was prepared; a file is named without its folder."""
    return {"split": corpus.split, "weight": corpus.weight,
            "source": fingerprint(corpus.source), "target": fingerprint(corpus.target)}  # fmt: skip


def fingerprint(path: Path) -> dict[str, Any]:
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": status.st_size, "modified": status.st_mtime_ns, "sha256": digest}


def finished(directory: Path, force: bool) -> dict[str, Any] | None:
    """The facts of a finished preparation, if there is one; with `force` a damaged one counts as none."""
    try:
        return read_meta(directory)
    except CorpusError:
        if force:
            return None
        raise


def differing(meta: dict[str, Any], wanted: dict[str, Any], corpora: list[Corpus]) -> str | None:
    """How a finished preparation differs from the one that is wanted now, in words; None if it does not."""
    for name, value in wanted.items():
        if meta["settings"].get(name) != value:
            return f"{name} was {meta['settings'].get(name)}, now {value}"
    before = meta["inputs"]
    if len(before) != len(corpora):
        return f"{len(before)} corpora then, {len(corpora)} now"
    for old, new in zip(before, corpora, strict=True):
        if old["split"] != new.split:
            return f"a {old['split']} corpus then, a {new.split} corpus now"
        if old["weight"] != new.weight:
            return f"the weight of {new.source.name} was {old['weight']}, now {new.weight}"
        for side, path in (("source", new.source), ("target", new.target)):
            if changed(old[side], path):
                return f"{path.name} has changed"
    return None


def changed(old: dict[str, Any], path: Path) -> bool:
    """Whether a file holds other bytes than it did; text that is gone, as after a move, has not changed."""
    if not path.exists():
        return False
    status = path.stat()
    if status.st_size != old["bytes"]:
        return True
    return status.st_mtime_ns != old["modified"] and fingerprint(path)["sha256"] != old["sha256"]


def install(partial: Path, directory: Path, meta: dict[str, Any]) -> None:
    """Put finished files in place; `meta.json` goes first and comes last, so no moment shows half of each."""
    (directory / META).unlink(missing_ok=True)
    shutil.rmtree(directory / IDS, ignore_errors=True)
    os.replace(partial / IDS, directory / IDS)
    os.replace(partial / VOCABULARY, directory / VOCABULARY)
    (partial / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(partial / META, directory / META)


def report(directory: Path, meta: dict[str, Any], *, reused: bool, seconds: float) -> PreparationReport:
    splits = {}
    for name, facts in meta["splits"].items():
        known = {key: value for key, value in facts.items() if key != "weights"}
        splits[name] = SplitReport(**known | {"shards": len(facts["shards"])})
    return PreparationReport(directory, meta["vocabulary"]["size"], splits, reused, seconds)


@contextlib.contextmanager
def empty_folder(path: Path) -> Iterator[Path]:
    """A folder that is empty at first and gone at the end."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep a second process out of the directory while this one prepares it."""
    with (directory / ".lock").open("w") as file:
        lock(file.fileno(), f"{directory} is being prepared by another process")
        yield
