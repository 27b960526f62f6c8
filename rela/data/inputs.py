"""The text files that a preparation reads: which they are, and whether they are still those it was made from."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rela.config import CorpusConfig, DataConfig
from rela.data.corpus import raw_lines, raw_pairs


@dataclass(frozen=True)
class Corpus:
    """One parallel corpus of a split, its paths resolved."""

    split: str
    source: Path
    target: Path
    weight: float


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
            store_columns(((left, right) for _, left, right in raw_pairs("-", "-")), [source, target])
        elif "-" in (corpus.source, corpus.target):
            stored = partial / "stdin.zst"
            store_columns(((line,) for _, line in raw_lines("-")), [stored])
            source, target = (stored, target) if corpus.source == "-" else (source, stored)
        yield Corpus(split, source, target, corpus.weight)


def store_columns(rows: Iterable[tuple[bytes | None, ...]], paths: list[Path]) -> None:
    """Write the columns of rows to compressed files; a line too long to hold becomes an empty one."""
    import zstandard

    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(zstandard.open(path, "wb")) for path in paths]
        for row in rows:
            for file, raw in zip(files, row, strict=True):
                file.write((raw or b"") + b"\n")


def describe(corpus: Corpus) -> dict[str, Any]:
    """What tells whether a corpus is the one that was prepared; a file is named without its folder."""
    return {
        "split": corpus.split,
        "weight": corpus.weight,
        "source": fingerprint(corpus.source),
        "target": fingerprint(corpus.target),
    }


def fingerprint(path: Path) -> dict[str, Any]:
    """Name, size, time and checksum of a file."""
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": status.st_size, "modified": status.st_mtime_ns, "sha256": digest}


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
