"""The text files that a preparation reads: which they are, and whether they are still those it was made from."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rela.config import CorpusConfig, DataConfig
from rela.data.corpus import CorpusError, raw_lines, raw_pairs
from rela.files import checksum
from rela.progress import Progress, no_progress


@dataclass(frozen=True)
class Corpus:
    """One parallel corpus of a split, its paths resolved."""

    split: str
    source: Path
    target: Path
    weight: float


def find_corpora(config: DataConfig, partial: Path) -> Iterator[Corpus]:
    """The corpora of every split; text from the standard input is stored first, because it is read three times."""
    splits = corpora_of(config)
    if sum("-" in (corpus.source, corpus.target) for _, corpus in splits) > 1:
        raise ValueError('more than one corpus is "-"; the standard input can be read once')
    for split, corpus in splits:
        found = located(split, corpus, Path(config.root), partial)
        if corpus.source == corpus.target == "-":
            store_columns(((left, right) for _, left, right in raw_pairs("-", "-")), [found.source, found.target])
        elif "-" in (corpus.source, corpus.target):
            stored = found.source if corpus.source == "-" else found.target
            store_columns(((line,) for _, line in raw_lines("-")), [stored])
        for path in (found.source, found.target):
            check_regular(path)
        yield found


def located(split: str, corpus: CorpusConfig, root: Path, partial: Path) -> Corpus:
    """A corpus with its paths below `root`; text from the standard input is stored below `partial`."""
    sides = {"source": corpus.source, "target": corpus.target}
    both = corpus.source == corpus.target == "-"
    stored = {side: partial / (f"stdin-{side}.zst" if both else "stdin.zst") for side in sides}
    paths = {side: stored[side] if name == "-" else root / name for side, name in sides.items()}
    return Corpus(split, paths["source"], paths["target"], corpus.weight)


def corpora_of(config: DataConfig) -> list[tuple[str, CorpusConfig]]:
    """The corpora of a configuration, each with its split."""
    splits = [("train", corpus) for corpus in config.train]
    splits += [("valid", config.valid)] if config.valid else []
    splits += [(split_of(corpus.name), CorpusConfig(corpus.source, corpus.target)) for corpus in config.more_valid]
    return splits + ([("test", config.test)] if config.test else [])


def split_of(name: str) -> str:
    """The split of a validation set: the first is called valid, others have a name of their own."""
    return name if name == "valid" else f"valid.{name}"


def check_regular(path: Path) -> None:
    """Refuse a pipe, which cannot be read three times, and a device, which may never end."""
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        raise CorpusError(f'{path} is {kind}; wanted a file, or "-" for the standard input')


def store_columns(rows: Iterable[tuple[bytes | None, ...]], paths: list[Path]) -> None:
    """Write the columns of rows to compressed files; a line too long to hold becomes an empty one."""
    import zstandard

    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(zstandard.open(path, "wb")) for path in paths]
        for row in rows:
            for file, raw in zip(files, row, strict=True):
                file.write((raw or b"") + b"\n")


def describe(corpora: list[Corpus], progress: Progress = no_progress) -> list[dict[str, Any]]:
    """What tells whether corpora are those that were prepared; a file is named without its folder."""
    total = sum(path.stat().st_size for corpus in corpora for path in (corpus.source, corpus.target))
    described, done = [], 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress("computing checksums", done, total)

    for corpus in corpora:
        source, target = fingerprint(corpus.source, report), fingerprint(corpus.target, report)
        described.append({"split": corpus.split, "weight": corpus.weight, "source": source, "target": target})
    return described


def fingerprint(path: Path, report: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Name, size, time and checksum of a file; `report` is told of each block of bytes."""
    status = path.stat()
    sha256 = checksum(path, report)
    return {"name": path.name, "bytes": status.st_size, "modified": status.st_mtime_ns, "sha256": sha256}


def differing(before: list[dict[str, Any]], corpora: list[Corpus]) -> str | None:
    """How corpora differ from those described in `before`, in words; None if they do not."""
    if len(before) != len(corpora):
        return f"{len(before)} corpora then, {len(corpora)} now"
    for old, new in zip(before, corpora, strict=True):
        if old["split"] != new.split:
            return f"a {old['split']} corpus then, a {new.split} corpus now"
        if old["weight"] != new.weight:
            return f"the weight of {new.source.name} was {old['weight']}, now {new.weight}"
        for side, path in (("source", new.source), ("target", new.target)):
            if not path.exists() and path.name != old[side]["name"]:
                return f"{old[side]['name']} then, {path.name} now, which is not there"
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
    return bool(status.st_mtime_ns != old["modified"] and fingerprint(path)["sha256"] != old["sha256"])
