"""Output that survives an interruption: finished lines stay beside it, and the next run goes on from them.

OUT.partial holds the lines so far, OUT.partial.json how far they count: up to the last window of lines that was
finished as a whole. The windows after it are the same as in a run without interruption, and so are their batches, so
that the output is the same to the last byte on every engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rela.files import checksum, is_written_into, lock, naming, read_json, target_of, write_text

# Seconds between two records of how far the output is.
SECONDS = 2.0


@dataclass
class Position:
    """How far an output is: source lines done, the digest of these, and the bytes written for them."""

    lines: int = 0
    size: int = 0
    source: Any = field(default_factory=hashlib.sha256)


class ResumableOutput:
    """Lines of output, begun anew or gone on with; `settings` are what the output depends on."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        out = target_of(out)
        self.out, self.settings = out, json.loads(json.dumps(settings))
        self.partial, self.record = out.with_name(f"{out.name}.partial"), out.with_name(f"{out.name}.partial.json")
        self.position = Position()
        self.recorded = time.monotonic()

    @contextlib.contextmanager
    def opened(self, sources: Iterator[str]) -> Iterator[Callable[[str], None]]:
        """A writer of lines. Sources that are done are taken from `sources`; the output appears when the body ends."""
        with naming(self.partial), open(self.partial, "a+b") as file:
            lock(file.fileno(), f"{self.partial} is being written by another process")
            self.skip(sources)
            file.truncate(self.position.size)
            self.file = file

            def write(line: str) -> None:
                file.write(line.encode("utf-8") + b"\n")

            yield write
            self.flush()
            os.replace(self.partial, self.out)
        self.record.unlink(missing_ok=True)

    def skip(self, sources: Iterator[str]) -> None:
        """Go to where the record says the output is, or to its beginning where there is none."""
        if not os.path.lexists(self.record):
            return
        try:
            found = read_json(self.record)
            lines, size, digest = (found[name] for name in ("lines", "size", "source"))
            settings = dict(found["settings"])
            if not all(type(number) is int and number >= 0 for number in (lines, size)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.record} is damaged; remove it and {self.partial} to begin anew") from None
        differing = [name for name in self.settings if settings.get(name) != self.settings[name]]
        if differing:
            raise ValueError(
                f"{self.partial} was begun with other {', '.join(differing)}; wanted the same, or remove it and "
                f"{self.record}"
            )
        if self.partial.stat().st_size < size:
            raise ValueError(f"{self.partial} is shorter than {self.record} says; remove both to begin anew")
        for line in islice(sources, min(lines, sys.maxsize)):
            self.count(line)
        if self.position.lines != lines or self.position.source.hexdigest() != digest:
            raise ValueError(f"the source is not the one that {self.partial} was made from; remove it to begin anew")
        self.position.size = size

    def count(self, source: str) -> None:
        """Note that a source line is done."""
        self.position.lines += 1
        self.position.source.update(source.encode("utf-8") + b"\n")

    def window_done(self) -> None:
        """Record the output so far, which ends with a whole window; not more often than every two seconds."""
        if time.monotonic() - self.recorded < SECONDS:
            return
        self.flush()
        state = {"lines": self.position.lines, "size": self.file.tell(), "source": self.position.source.hexdigest()}
        write_text(self.record, json.dumps({"settings": self.settings, **state}))
        self.recorded = time.monotonic()

    def flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


def make_resumable(out: Path | None, settings: dict[str, Any]) -> ResumableOutput:
    """The output of --resume, which needs a file."""
    if out is None or str(out) == "-" or is_written_into(out):
        raise ValueError("--resume without a file to go on with; wanted --out FILE too")
    return ResumableOutput(out, settings)


def model_digests(models: list[Any]) -> list[str]:
    """What tells models apart: the digest of each one's weights and of the heads it aligns by."""
    from rela.model.folder import WEIGHTS, find_model

    folders = [find_model(model) for model in models]
    return [
        " ".join(checksum(path) for path in (folder / WEIGHTS, folder / "alignment.json") if path.is_file())
        for folder in folders
    ]
