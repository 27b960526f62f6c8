"""From raw text to subword ids on disk, in three passes over the text that never hold it in memory.

1. Count the usable pairs and find what is wrong with the files before any time is spent on them.
2. Learn the joint vocabulary from a uniform sample of known size.
3. Encode; each training pair goes to a shard drawn at random, so that training may shuffle the shards and
   the pairs inside one shard, and has then shuffled the corpus.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rela.config import DataConfig
from rela.data.corpus import CorpusError
from rela.data.encode import CountedCorpus, count_pairs, encode_split, sample_lines
from rela.data.inputs import Corpus, describe, differing, find_corpora
from rela.data.provenance import differing_settings, settings_of
from rela.data.shards import (
    FORMAT,
    IDS,
    META,
    SHARD_FILE,
    VOCABULARY,
    ShardWriter,
    ids_folder,
    read_meta,
    vocabulary_path,
)
from rela.data.subwords import Subwords, pack_models, train_subwords
from rela.files import checksum, held, naming, read_part, remove_leftovers, synchronise, write_bytes
from rela.progress import Progress, no_progress


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
            tokens = f"{split.source_tokens:,} source and {split.target_tokens:,} target tokens"
            lines.append(f"{name}: {split.pairs:,} of {split.read:,} pairs, {tokens}; dropped: {dropped}")
        return "\n".join(lines)


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
    if subwords is not None:
        check_given(subwords, config)
    directory = Path(config.directory)
    directory.mkdir(parents=True, exist_ok=True)
    with naming(directory), locked(directory), empty_folder(directory / ".partial") as partial:
        corpora = list(find_corpora(config, partial))
        settings = {**settings_of(config), "subwords": subwords.sha256 if subwords else None}
        meta = reusable(directory, settings, corpora, force)
        reused = meta is not None
        if meta is None:
            if not force:
                check_vocabulary_is_ours(directory, subwords)
            progress = progress or no_progress
            facts = write_ids(config, corpora, partial, subwords, threads, progress)
            languages = [config.source_language, config.target_language]
            inputs = describe(corpora, progress)
            meta = {"format": FORMAT, "languages": languages, "settings": settings, "inputs": inputs, **facts}
            install(partial, directory, meta)
        tidy(directory, meta)
    return report(directory, meta, reused=reused, seconds=time.monotonic() - started)


def check_given(subwords: Subwords, config: DataConfig) -> None:
    """Refuse a vocabulary that is not of the configuration's size and kind."""
    for size in (subwords.size, subwords.source.size):
        if size != config.vocabulary_size:
            raise ValueError(f"vocabulary_size is {config.vocabulary_size}, but the given vocabulary has {size}")
    found = "joint" if subwords.is_joint else "separate"
    if found != config.vocabularies:
        raise ValueError(f"vocabularies is {config.vocabularies}, but the given vocabulary is {found}")


def reusable(directory: Path, settings: dict[str, Any], corpora: list[Corpus], force: bool) -> dict[str, Any] | None:
    """The facts of a finished preparation that is the wanted one; None if there is none, or another and `force`."""
    meta = finished(directory, force)
    if meta is None:
        return None
    difference = differing_settings(meta["settings"], settings) or differing(meta["inputs"], corpora)
    if difference is None:
        return meta
    if not force:
        advice = "prepare it again with --force, or choose another data.directory"
        raise ValueError(f"{directory} was prepared otherwise: {difference}; {advice}")
    return None


def finished(directory: Path, force: bool) -> dict[str, Any] | None:
    """The facts of a finished preparation, if there is one; with `force` a damaged one counts as none."""
    try:
        return read_meta(directory)
    except CorpusError:
        if force:
            return None
        raise


def check_vocabulary_is_ours(directory: Path, subwords: Subwords | None) -> None:
    """Refuse to replace a vocabulary that no preparation put into the directory."""
    path = directory / VOCABULARY
    foreign = path.exists() and not (directory / META).exists() and not id_folders(directory)
    if foreign and (subwords is None or checksum(path) != subwords.sha256):
        raise ValueError(f"{path} would be replaced, and `rela prepare` did not write it; choose another directory")


def write_ids(
    config: DataConfig,
    corpora: list[Corpus],
    partial: Path,
    subwords: Subwords | None,
    threads: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Write the vocabulary, learnt if none is given, and the shards of all splits to the folder `partial`.

    Returns what `meta.json` says about them.
    """
    counted = [count_pairs(corpus, config.on_bad_line, progress) for corpus in corpora]
    splits = {split: [item for item in counted if item.corpus.split == split] for split in names_of(corpora)}
    if subwords is None:
        subwords = learn_subwords(splits["train"], config, progress)
    (partial / IDS).mkdir()
    subwords.save(partial / IDS / VOCABULARY)
    facts = {}
    for split, members in splits.items():
        # Valid and test keep the order of their files, in one shard.
        shards = -(-sum(item.usable for item in members) // config.shard_pairs) if split == "train" else 1
        writer = ShardWriter(partial / IDS, split, shards, subwords.size)
        facts[split] = encode_split(members, subwords, writer, config, threads, progress)
    return {"vocabulary": {"size": subwords.size, "sha256": subwords.sha256}, "splits": facts}


def names_of(corpora: list[Corpus]) -> list[str]:
    """The names of the splits, in the order in which they first occur."""
    return list(dict.fromkeys(corpus.split for corpus in corpora))


def learn_subwords(training: list[CountedCorpus], config: DataConfig, progress: Progress) -> Subwords:
    """A vocabulary learnt from a sample of the training text, or one for each side."""
    usable = sum(item.usable for item in training)

    def sample() -> Iterator[str]:
        return sample_lines([item.corpus for item in training], usable, config, progress)

    def learn(lines: Iterator[str]) -> Subwords:
        coverage, kind = config.character_coverage, config.subword_model
        return train_subwords(lines, config.vocabulary_size, seed=config.seed, character_coverage=coverage, kind=kind)

    if config.vocabularies == "joint":
        return learn(sample())
    # The lines of source and target come in turn; drawn twice, they are the same.
    return pack_models(*(learn(itertools.islice(sample(), side, None, 2)) for side in (0, 1)))


def install(partial: Path, directory: Path, meta: dict[str, Any]) -> None:
    """Put finished files in place: the ids under a name of their own, then the `meta.json` that names them.

    Its rename is the one moment at which the new preparation takes the place of the old one.
    """
    with contextlib.suppress(CorpusError):
        before = read_meta(directory)
        remove_ids(directory, keep=None if before is None else ids_folder(directory, before))
    taken = {path.name for path in directory.iterdir()}
    meta["ids"] = next(name for number in itertools.count(1) if (name := ids_name(number)) not in taken)
    for file in (partial / IDS).iterdir():  # a name must not reach the disk before what it names
        synchronise(file)
    os.replace(partial / IDS, directory / meta["ids"])
    (partial / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False), encoding="utf-8")
    synchronise(partial / META)
    os.replace(partial / META, directory / META)


def tidy(directory: Path, meta: dict[str, Any]) -> None:
    """Copy the vocabulary to where other configurations find it; remove the ids of earlier preparations."""
    vocabulary, copy = vocabulary_path(directory, meta), directory / VOCABULARY
    if copy != vocabulary and (not copy.exists() or checksum(copy) != meta["vocabulary"]["sha256"]):
        write_bytes(copy, read_part(vocabulary))
    remove_leftovers(directory)
    (directory / ".lock").unlink(missing_ok=True)  # of an older version
    remove_ids(directory, keep=ids_folder(directory, meta))


def ids_name(number: int) -> str:
    """The name of the n-th folder of ids: ids, ids-2, ids-3, …"""
    return IDS if number == 1 else f"{IDS}-{number}"


def id_folders(directory: Path) -> list[Path]:
    """The folders of ids in a directory: of the preparation that counts, and of earlier or interrupted ones."""
    named = [path for path in directory.iterdir() if re.fullmatch(rf"{IDS}(-\d+)?", path.name)]
    folders = [path for path in named if path.is_dir() and not path.is_symlink()]
    inside = {path: [file.name for file in path.iterdir()] for path in folders}
    return [path for path in folders if not inside[path] or any(map(SHARD_FILE.fullmatch, inside[path]))]


def remove_ids(directory: Path, keep: Path | None) -> None:
    """Remove our files from all folders of ids but one, where no run is training with them."""
    for folder in id_folders(directory):
        if folder == keep:
            continue
        with contextlib.suppress(OSError, ValueError), held(folder, os.O_RDONLY):
            (folder / VOCABULARY).unlink(missing_ok=True)  # first: what is left shows whose folder it is
            for file in folder.iterdir():
                if SHARD_FILE.fullmatch(file.name):
                    file.unlink()
            folder.rmdir()  # unless something else lies in it


def report(directory: Path, meta: dict[str, Any], *, reused: bool, seconds: float) -> PreparationReport:
    """The report of a preparation from what `meta.json` says."""
    splits = {}
    for name, facts in meta["splits"].items():
        known = {key: value for key, value in facts.items() if key not in ("weights", "checksums")}
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
    with held(directory, os.O_RDONLY, f"{directory} is being prepared by another process"):
        yield
