"""Files and folders that are written whole or not at all, and locks on them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to: renamed to it when the body ends, removed when the body fails."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a binary file, whole or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(data)


@contextlib.contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """An empty folder beside `path` to fill: takes its place when the body ends, is removed when the body fails."""
    path = Path(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir()
        yield fresh
        replace_folder(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def replace_folder(fresh: Path, path: Path) -> None:
    """Put a finished folder in the place of an old one; at every moment one of the two is whole on disk."""
    for file in fresh.iterdir():  # a name must not reach the disk before what it names
        with open(file, "rb") as content:
            os.fsync(content.fileno())
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(fresh, path)
    shutil.rmtree(old, ignore_errors=True)


def lock(handle: int, message: str) -> None:
    """Lock the open file or folder `handle` until it is closed; ValueError(message) if another process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(message) from None
