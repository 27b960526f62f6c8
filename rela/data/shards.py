"""A prepared corpus on disk: shards of subword ids, written once, then memory-mapped.

DIRECTORY/meta.json         settings, checksums, sizes and the name of the folder of ids; its rename is what switches
                            from one preparation to the next
DIRECTORY/subwords.model    a copy of the SentencePiece model, for other configurations
DIRECTORY/ids/subwords.model      the SentencePiece model
DIRECTORY/ids/SPLIT-00000.ids     uint16 or uint32: source ids, target ids, source ids, … of one pair after another
DIRECTORY/ids/SPLIT-00000.index   int64 [2 n + 1]: where each of these runs starts, and where the last one ends
DIRECTORY/ids/SPLIT-00000.corpus  uint16 [n]: the training corpus a pair comes from, for its weight

SPLIT is train, valid, test, or valid.NAME of a further validation set.
Directories of version 0.1.0 before checksums have the model in DIRECTORY alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import CorpusError
from rela.files import checksum, lock, read_json

FORMAT = 1
META, VOCABULARY, IDS = "meta.json", "subwords.model", "ids"
SHARD_FILE = re.compile(r"(train|valid(\.[\w-]+)?|test)-\d{5,}\.(ids|index|corpus)")
Ids = NDArray[Any]


def shard_files(folder: Path, split: str, number: int) -> tuple[Path, Path, Path]:
    """The ids, index and corpus files of a shard."""
    ids, index, corpus = (folder / f"{split}-{number:05d}.{suffix}" for suffix in ("ids", "index", "corpus"))
    return ids, index, corpus


def id_type(vocabulary_size: int) -> np.dtype[Any]:
    """The narrowest type that holds every id."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


class ShardWriter:
    """Append pairs of id lists to the shards of one split."""

    def __init__(self, folder: Path, split: str, shards: int, vocabulary_size: int) -> None:
        self.folder, self.split, self.type = folder, split, id_type(vocabulary_size)
        self.shards = shards
        self.digests: dict[str, Any] = {}
        self.ends = [0] * shards
        self.pairs = [0] * shards
        self.tokens, self.longest = np.zeros(2, np.int64), np.zeros(2, np.int64)
        for number in range(shards):
            self.append(shard_files(folder, split, number)[1], np.zeros(1, "<i8"))

    def add(self, pairs: Sequence[tuple[list[int], list[int]]], shards: NDArray[np.int64], corpus: int) -> None:
        """Write pairs[i] to shard shards[i]."""
        for number in np.unique(shards).tolist():
            chosen = [pairs[member] for member in np.flatnonzero(shards == number)]
            lengths = np.array([(len(source), len(target)) for source, target in chosen])  # [n, 2]
            self.tokens += lengths.sum(0)
            self.longest = np.maximum(self.longest, lengths.max(0))
            flat = itertools.chain.from_iterable(itertools.chain.from_iterable(chosen))
            boundaries = self.ends[number] + np.cumsum(lengths.ravel())
            ids, index, corpora = shard_files(self.folder, self.split, number)
            self.append(ids, np.fromiter(flat, self.type, count=int(lengths.sum())))
            self.append(index, boundaries.astype("<i8"))
            self.append(corpora, np.full(len(chosen), corpus, "<u2"))
            self.ends[number] = int(boundaries[-1])
            self.pairs[number] += len(chosen)

    def append(self, path: Path, values: NDArray[Any]) -> None:
        """Add the bytes of an array to the end of a file and to its checksum."""
        with path.open("ab") as file:
            file.write(values.data)
        self.digests.setdefault(path.name, hashlib.sha256()).update(values.data)

    def facts(self) -> dict[str, Any]:
        """What `meta.json` keeps of this split."""
        source_tokens, target_tokens = self.tokens.tolist()
        longest_source, longest_target = self.longest.tolist()
        return {
            "pairs": sum(self.pairs),
            "source_tokens": source_tokens,
            "target_tokens": target_tokens,
            "longest_source": longest_source,
            "longest_target": longest_target,
            "shards": self.pairs,
            "checksums": {name: digest.hexdigest() for name, digest in sorted(self.digests.items())},
        }


@dataclass(frozen=True)
class Shard:
    """One memory-mapped shard of n pairs."""

    ids: Ids
    index: NDArray[np.int64]
    corpus: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.corpus)

    def pair(self, number: int) -> tuple[Ids, Ids]:
        """Source and target ids of a pair, without BOS and EOS: views, not copies."""
        start, middle, end = self.index[2 * number : 2 * number + 3].tolist()
        return self.ids[start:middle], self.ids[middle:end]

    def lengths(self) -> NDArray[np.int32]:
        """Source and target length of each pair, [n, 2]."""
        return np.diff(self.index).astype(np.int32).reshape(-1, 2)


class PreparedCorpus:
    """One split of a prepared directory, memory-mapped, so that RAM does not grow with its size."""

    def __init__(
        self,
        directory: Path,
        split: str,
        facts: dict[str, Any],
        vocabulary_size: int,
        folder: Path | None = None,
    ) -> None:
        self.directory, self.split = directory, split
        self.folder = folder or directory / IDS
        self.meta: dict[str, Any] = {}
        self.vocabulary_size = vocabulary_size
        self.source_tokens: int = facts["source_tokens"]
        self.target_tokens: int = facts["target_tokens"]
        self.longest_source: int = facts["longest_source"]
        self.longest_target: int = facts["longest_target"]
        self.weights: list[float] = facts["weights"]
        self.shard_sizes: list[int] = facts["shards"]
        self.checksums: dict[str, str] = facts.get("checksums", {})
        """Of the files, by their names; empty in a directory of an older version."""
        self._unchecked = set(range(len(self.shard_sizes)))
        self.starts = np.cumsum([0, *self.shard_sizes])
        self._mapped: tuple[int, Shard] | None = None

    @classmethod
    def open(cls, directory: str | Path, split: str) -> PreparedCorpus:
        """Open one split ("train", "valid", "test") of what `prepare` wrote, after checking that it is all there."""
        directory = Path(directory)
        meta = read_meta(directory)
        if meta is None:
            raise CorpusError(f"{directory} holds no prepared corpus; run `rela prepare` first")
        vocabulary, path = meta["vocabulary"], vocabulary_path(directory, meta)
        try:
            found = checksum(path)
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from None
        if found != vocabulary["sha256"]:
            raise CorpusError(f"{path} is not the vocabulary that the ids beside it were made with")
        if split not in meta["splits"]:
            there = ", ".join(meta["splits"])
            raise CorpusError(f"{directory} has no split {split!r}; it has {there}; rela prepare --force adds new text")
        folder = ids_folder(directory, meta)
        corpus = cls(directory, split, meta["splits"][split], vocabulary["size"], folder)
        corpus.meta = meta
        corpus._lock_folder()
        corpus._check_files()
        return corpus

    @property
    def vocabulary(self) -> Path:
        """The SentencePiece model of the ids."""
        return vocabulary_path(self.directory, self.meta)

    @property
    def fingerprint(self) -> str | None:
        """A hash of all ids, their order and their weights; None in a directory of an older version."""
        if not self.checksums:
            return None
        return hashlib.sha256(json.dumps([self.checksums, self.weights], sort_keys=True).encode()).hexdigest()

    def _lock_folder(self) -> None:
        """Keep the folder of ids from being removed as long as this corpus is in use."""
        with contextlib.suppress(OSError):  # Windows, or a file system that knows no locks
            handle = os.open(self.folder, os.O_RDONLY)
            weakref.finalize(self, os.close, handle)
            lock(handle, f"{self.folder} is being removed by another process", shared=True)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pair(self, number: int) -> tuple[Ids, Ids]:
        """Source and target ids of the pair, without BOS and EOS."""
        if not 0 <= number < len(self):
            raise IndexError(f"pair {number} of {len(self)}")
        shard = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.shard(shard).pair(number - int(self.starts[shard]))

    def shard(self, number: int) -> Shard:
        """A shard, mapped; the one before it is unmapped, because pages that were read count as memory until then."""
        mapped = self._mapped
        if mapped is None or mapped[0] != number:
            self._mapped = mapped = number, self._map(number)
        return mapped[1]

    def _map(self, number: int) -> Shard:
        count = self.shard_sizes[number]
        if count == 0:
            return Shard(np.zeros(0, "<u2"), np.zeros(1, np.int64), np.zeros(0, np.uint16))
        ids, index, corpus = shard_files(self.folder, self.split, number)
        self._check_text(number)
        return Shard(
            map_file(ids, id_type(self.vocabulary_size)),
            map_file(index, np.dtype("<i8")),
            map_file(corpus, np.dtype("<u2")),
        )

    def _check_files(self) -> None:
        """Every shard file has the size that its index promises."""
        width = id_type(self.vocabulary_size).itemsize
        for number, count in enumerate(self.shard_sizes):
            if count == 0:
                continue
            ids, index, corpus = shard_files(self.folder, self.split, number)
            check_size(index, 8 * (2 * count + 1))
            check_size(corpus, 2 * count)
            with index.open("rb") as file:
                file.seek(-8, 2)
                check_size(ids, width * int(np.frombuffer(file.read(8), "<i8")[0]))

    def _check_text(self, number: int) -> None:
        """A shard's files are those that were written, by their checksums; looked at when it is first used."""
        if number in self._unchecked and self.checksums:
            for path in shard_files(self.folder, self.split, number):
                if checksum(path) != self.checksums.get(path.name):
                    raise CorpusError(f"{path} is not the file that was prepared; run `rela prepare --force`")
        self._unchecked.discard(number)


def ids_folder(directory: Path, meta: dict[str, Any]) -> Path:
    """The folder of ids that a preparation is made of."""
    return directory / str(meta.get("ids", IDS))


def vocabulary_path(directory: Path, meta: dict[str, Any]) -> Path:
    """The SentencePiece model that the ids of a preparation were made with."""
    return (ids_folder(directory, meta) if "ids" in meta else directory) / VOCABULARY


def map_file(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    """A file as an array; a plain one, because slices of np.memmap cost several times as much."""
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def check_size(path: Path, wanted: int) -> None:
    """Raise a CorpusError unless the file has `wanted` bytes."""
    found = path.stat().st_size if path.exists() else "none"
    if found != wanted:
        raise CorpusError(f"{path} is damaged: {found} bytes, wanted {wanted}; run `rela prepare --force`")


def read_meta(directory: Path) -> dict[str, Any] | None:
    """What a finished preparation says about itself; None if there is none."""
    path = directory / META
    try:
        meta = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError:
        raise CorpusError(f"{path} is damaged; run `rela prepare --force`") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CorpusError(f"{path} is of another format, wanted {FORMAT}; run `rela prepare --force`")
    if not is_manifest(meta):
        raise CorpusError(f"{path} is damaged; run `rela prepare --force`")
    return meta


def is_manifest(meta: dict[str, Any]) -> bool:
    """Whether a mapping has all that the manifest of a preparation says, each of its type."""

    def has(values: Any, types: dict[str, Any]) -> bool:
        return isinstance(values, dict) and all(isinstance(values.get(name), kind) for name, kind in types.items())

    number = (int, float)
    counts = dict.fromkeys(("source_tokens", "target_tokens", "longest_source", "longest_target"), int)
    split = {**counts, "weights": list, "shards": list}
    file = {"name": str, "bytes": int, "modified": int, "sha256": str}
    return (
        has(meta, {"settings": dict, "inputs": list, "vocabulary": dict, "splits": dict})
        and has(meta["vocabulary"], {"size": int, "sha256": str})
        and bool(re.fullmatch(rf"{IDS}(-\d+)?", str(meta.get("ids", IDS))))
        and all(has(facts, split) for facts in meta["splits"].values())
        and all(has(facts.get("checksums", {}), {}) for facts in meta["splits"].values())
        and all(isinstance(size, int) and size >= 0 for facts in meta["splits"].values() for size in facts["shards"])
        and all(isinstance(weight, number) for facts in meta["splits"].values() for weight in facts["weights"])
        and all(has(item, {"split": str, "weight": number}) for item in meta["inputs"])
        and all(has(item.get(side), file) for item in meta["inputs"] for side in ("source", "target"))
    )
