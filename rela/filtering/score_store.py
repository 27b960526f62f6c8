"""Scores on disk while they are being made, so that work can stop at any moment.

Each process appends to a file of scores and to a journal of finished blocks.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rela.files import lock, naming, parse_json, read_json, read_part, write_text

RECORD = np.dtype([("null_rate", "<f8"), ("log_prob", "<f8"), ("score", "<f8"), ("problem", "u1")])
"""One pair; the scores of a pair with a problem are NaN, and so is `score` where no detector was asked."""
JOB = "job.json"
ENTRY = ("block", "offset", "pairs", "checksum")
"""What a line of the journal holds, all numbers."""


@dataclass(frozen=True)
class Block:
    """Where the scores of one block of consecutive lines lie."""

    part: str
    offset: int
    pairs: int
    checksum: int


class ScoreStore:
    """A folder of scores: each process appends blocks to a part of its own and then writes them into its journal.

    What the journal does not know was never finished and is cut off by the next writer of that part. Blocks may be
    in any part, so another number of processes can go on with the work.
    """

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        """Open the folder, or make it; `job` says what is scored by what, and must not have changed."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / JOB
        if not path.exists():  # several processes may come here at once, with the same job
            write_text(path, json.dumps(job, indent=1))
        try:
            known = dict(read_json(path))
        except (ValueError, TypeError):
            raise ValueError(f"{path} is damaged; remove the folder {folder} to score from the beginning") from None
        if changed := sorted(key for key in job.keys() | known.keys() if job.get(key) != known.get(key)):
            raise ValueError(
                f"{folder} holds scores of another job ({', '.join(changed)} changed); "
                "give another --out, or remove the folder to score from the beginning"
            )

    def finished(self) -> dict[int, Block]:
        """The blocks that are complete, by number."""
        blocks = {}
        for journal in sorted(self.folder.glob("part-*.journal")):
            for entry in journal_entries(journal):
                blocks[entry["block"]] = Block(journal.stem, entry["offset"], entry["pairs"], entry["checksum"])
        return blocks

    @contextlib.contextmanager
    def writer(self, rank: int) -> Iterator[PartWriter]:
        """The writer of one process' part; a second writer of the same part is refused while the first lives."""
        name = f"part-{rank:04d}"
        with (
            naming(self.folder),
            open(self.folder / f"{name}.scores", "ab") as scores,
            open(self.folder / f"{name}.journal", "ab") as journal,
        ):
            lock(journal.fileno(), f"{self.folder}: another process is writing {name}; wait for it or stop it")
            whole = list(journal_entries(self.folder / f"{name}.journal"))
            end = max((entry["offset"] + entry["pairs"] * RECORD.itemsize for entry in whole), default=0)
            if end > scores.tell():
                raise ValueError(f"{self.folder / name}.scores is shorter than its journal says; remove {self.folder}")
            scores.truncate(end)
            journal.truncate(whole_length(self.folder / f"{name}.journal"))
            yield PartWriter(scores, journal)

    def read(self) -> NDArray[Any]:
        """All scores in the order of the lines; an error if a block is missing or damaged."""
        blocks = self.finished()
        parts = []
        for number in range(len(blocks)):
            if number not in blocks:
                raise ValueError(f"{self.folder} lacks block {number}; run the same command again to finish")
            block = blocks[number]
            with open(self.folder / f"{block.part}.scores", "rb") as file:
                file.seek(block.offset)
                raw = file.read(block.pairs * RECORD.itemsize)
            if zlib.crc32(raw) != block.checksum:
                raise ValueError(f"{self.folder}/{block.part}.scores is damaged; remove the folder to score again")
            parts.append(np.frombuffer(raw, RECORD))
        return np.concatenate(parts) if parts else np.empty(0, RECORD)


class PartWriter:
    """Appends blocks to one part; a block counts when its line in the journal is on the disk."""

    def __init__(self, scores: IO[bytes], journal: IO[bytes]) -> None:
        self.scores, self.journal = scores, journal

    def add(self, number: int, values: NDArray[Any]) -> None:
        """Append the scores of a block: the numbers first, then the journal's line that makes them valid."""
        raw = values.astype(RECORD).tobytes()
        offset = self.scores.seek(0, os.SEEK_END)
        self._write(self.scores, raw)
        entry = {"block": number, "offset": offset, "pairs": len(values), "checksum": zlib.crc32(raw)}
        self._write(self.journal, json.dumps(entry).encode() + b"\n")

    @staticmethod
    def _write(file: IO[bytes], raw: bytes) -> None:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def journal_entries(path: Path) -> Iterator[dict[str, int]]:
    """The entries of a journal; a last line without its end was being written when the process died."""
    for line in read_part(path).split(b"\n")[:-1]:
        try:
            entry = parse_json(line)
            if not all(type(entry[name]) is int and 0 <= entry[name] < 2**48 for name in ENTRY):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged; remove the folder to score from the beginning") from None
        yield entry


def whole_length(path: Path) -> int:
    """Bytes up to the end of the last complete line."""
    return read_part(path).rfind(b"\n") + 1
