"""What is finished of a job: a file for each shard and a manifest that names them, so that work can stop any time.

A shard's file appears whole or not at all. A shard counts when its line of the manifest is on the disk; one that was
written and not yet noted is written again, with the same content. The last line says that the job is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rela.files import check_regular, lock, parse_json, read_all

MANIFEST = "manifest.jsonl"


class Manifest:
    """The manifest of a folder of shards; open it with `open_manifest`."""

    def __init__(self, folder: Path, file: IO[bytes], entries: list[dict[str, Any]]) -> None:
        self.folder, self.file = folder, file
        self.done = {entry["shard"]: entry for entry in entries if "shard" in entry}
        self.complete = any(entry.get("complete") for entry in entries)

    def add(self, entry: dict[str, Any]) -> None:
        """Note a finished shard, {"shard": number, "file": name, "rows": count, …}; a second time changes nothing."""
        if entry["shard"] not in self.done:
            self.done[entry["shard"]] = entry
            self.write(entry)

    def finish(self) -> None:
        """Note that every shard is there."""
        if not self.complete:
            rows = sum(entry["rows"] for entry in self.done.values())
            self.write({"complete": True, "shards": len(self.done), "rows": rows})
            self.complete = True

    def write(self, entry: dict[str, Any]) -> None:
        self.file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())


@contextlib.contextmanager
def open_manifest(folder: Path, job: dict[str, Any]) -> Iterator[Manifest]:
    """The manifest of a folder, which is made; `job` says what is done to what, and must not have changed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    if path.exists():
        check_regular(path)
    elif any(folder.iterdir()):
        raise ValueError(f"{folder} holds other files and no {MANIFEST}; wanted a new folder, or one of this command")
    with path.open("ab+") as file:
        lock(file.fileno(), f"another command is writing to {folder}; wait for it or stop it")
        file.seek(0)
        data = read_all(file, str(path))
        file.truncate(data.rfind(b"\n") + 1)  # a last line without its end was being written when a process died
        try:
            entries = [read_entry(line) for line in data.split(b"\n")[:-1]]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged; remove {folder} to begin again") from None
        job = json.loads(json.dumps(job))
        if not entries:
            manifest = Manifest(folder, file, [])
            manifest.write({"job": job})
        else:
            check_same_job(folder, entries[0].get("job", {}), job)
            manifest = Manifest(folder, file, entries[1:])
        yield manifest


def read_entry(line: bytes) -> dict[str, Any]:
    """One line of a manifest: the job, a shard with its number of rows, or that the job is complete."""
    entry = dict(parse_json(line))
    numbers = [entry[name] for name in ("shard", "rows")] if "shard" in entry else []
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a number of a shard or of its rows is none")
    if "shard" in entry and not isinstance(entry["file"], str):
        raise ValueError("the name of a file is none")
    if not isinstance(entry.get("job", {}), dict):
        raise ValueError("the job is no object")
    return entry


def check_same_job(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another job."""
    if changed := sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key)):
        message = f"{folder} holds shards of another job ({', '.join(changed)} changed)"
        raise ValueError(f"{message}; give another --out, or remove the folder to begin again")
