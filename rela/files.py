"""Files and folders that are written whole or not at all, what killed processes leave of them, and locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.(?P<state>part|new|old)", re.DOTALL)
"""The name of what is being written: .NAME.PROCESS.part for a file, .new for a folder, .old for the one it replaces."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing: the disk is full, the user's quota is used up, the file is as large as it may be."""
LARGEST = 1 << 28
"""Bytes of a file that is read as a whole, at most; a device has no end."""
LARGEST_JSON = 1 << 25
"""Bytes of a file of JSON that a command wrote into a folder; as values they take up to twenty times as much memory."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to: renamed to it when the body ends, removed when the body fails.

    A link stays one: the file that it leads to is replaced. What is no regular file, such as /dev/null or a FIFO,
    cannot be replaced without being lost, so there the path to write to is `path` itself.
    """
    if is_written_into(path):
        yield Path(path)
        return
    path = target_of(path)
    partial = temporary(path, "part")
    try:
        with naming(path), held(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            remove_leftovers(path.parent, path.name)
            if path.is_file():
                shutil.copymode(path, partial)
            yield partial
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within this, the error of a disk that is full names the path that was being written; by itself it has no name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FULL:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def target_of(path: str | Path) -> Path:
    """Where a path leads through all links; an error for links that lead to one another."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def is_written_into(path: str | Path) -> bool:
    """Whether a path is a device, a FIFO or an open file of a process, such as /dev/stdout."""
    path = os.path.abspath(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return True
    while os.path.islink(path):
        folder = os.path.realpath(os.path.dirname(path))
        if re.fullmatch(r"/proc/\d+(/task/\d+)?/fd", folder):
            return True
        path = os.path.join(folder, os.readlink(path))
    return False


def final_name(path: str | Path) -> Path:
    """The path that a temporary one, or one in a temporary folder, is to become; any other path as it is."""
    return Path(*(match["name"] if (match := TEMPORARY.fullmatch(part)) else part for part in Path(path).parts))


def read_all(file: IO[bytes], name: str, largest: int | None = None) -> bytes:
    """The rest of an open file; ValueError for one that is too large, or without end."""
    largest = LARGEST if largest is None else largest
    data = bytearray()
    while block := file.read(1 << 20):  # read takes memory for all that it is asked for
        data += block
        if len(data) > largest:
            raise ValueError(f"{name} is over {largest >> 20} MiB; wanted a smaller file")
    return bytes(data)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file that is read as a whole; ValueError for one that is too large, or without end."""
    with open(path, "rb") as file:
        return read_all(file, str(path))


def read_text(path: str | Path) -> str:
    """The text of such a file in UTF-8, without a mark of byte order; ValueError if it is none."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None


def read_part(path: str | Path, largest: int | None = None) -> bytes:
    """The bytes of a file that a command once wrote into a folder, such as subwords.model in that of a model.

    ValueError for a device, a pipe, and a file that is too large.
    """
    check_regular(path)
    with open(path, "rb") as file:
        return read_all(file, str(path), largest)


def check_regular(path: str | Path) -> None:
    """Refuse a device, which may have no end, and a pipe, which waits for a writer: only a user may name one."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # open has its own error for a folder
        raise ValueError(f"{path} is a device or a pipe; wanted a regular file")


def read_json(path: str | Path) -> Any:
    """The value of such a file of JSON; ValueError too for one that is not UTF-8, no JSON or nested too deeply."""
    return parse_json(read_part(path, LARGEST_JSON).decode("utf-8"))


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
    path = target_of(path)  # a link to a folder stays one
    fresh = temporary(path, "new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir()
        with naming(path), held(fresh, os.O_RDONLY):
            remove_leftovers(path.parent, path.name)
            yield fresh
            replace_folder(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def replace_folder(fresh: Path, path: Path) -> None:
    """Put a finished folder in the place of an old one, by one rename where the file system can exchange two names.

    Where it cannot, a process killed between two renames leaves the old folder as .NAME.PROCESS.old, and
    `remove_leftovers` gives it back its name.
    """
    for file in fresh.rglob("*"):  # a name must not reach the disk before what it names
        synchronise(file)
    if not path.exists():
        os.replace(fresh, path)
    elif not exchange(fresh, path):
        old = temporary(path, "old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(path, old)
        os.replace(fresh, path)
        shutil.rmtree(old, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder; it is whole under its name, or has none any more, wherever the process is killed."""
    unnamed = temporary(path, "new")
    shutil.rmtree(unnamed, ignore_errors=True)
    os.replace(path, unnamed)
    shutil.rmtree(unnamed, ignore_errors=True)


def temporary(path: Path, state: str) -> Path:
    """Where this process writes what will be `path`; TEMPORARY matches its name."""
    return path.with_name(f".{path.name}.{os.getpid()}.{state}")


def synchronise(path: Path) -> None:
    """Wait until a file is on the disk."""
    if path.is_file():
        with open(path, "rb") as content:
            os.fsync(content.fileno())


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, in which no process sees either of them missing; False where that cannot be done."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # Linux
    except (OSError, TypeError, AttributeError):
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-written in a folder: of the file or folder `name`, or of all.

    What a live process is writing stays. An old folder whose successor never came gets its name back.
    """
    for path in folder.glob(".*"):
        match = TEMPORARY.fullmatch(path.name)
        if match is None or match["name"] != (name or match["name"]) or is_in_use(path, int(match["process"])):
            continue
        if match["state"] == "old" and not (folder / match["name"]).exists():
            os.replace(path, folder / match["name"])
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_in_use(path: Path, process: int) -> bool:
    """Whether a process may still be writing a temporary path: it holds its lock, or its number is that of a live one.

    The lock also tells of processes in other containers; the number, where the file system knows no locks.
    """
    try:
        with held(path, os.O_RDONLY):
            return process != os.getpid() and is_alive(process)
    except (OSError, ValueError):
        return path.exists()


def is_alive(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def held(path: Path, flags: int, message: str = "") -> Iterator[None]:
    """Hold the lock of a file or folder; a ValueError if another process does."""
    if os.name == "nt":  # where a folder cannot be opened, and an open file not be renamed
        if flags & os.O_CREAT:
            path.touch()
        yield
        return
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(final_name(path))) from None  # the name that was asked for
    try:
        with contextlib.suppress(OSError):  # a file system that knows no locks
            lock(handle, message or f"{path} is being written by another process")
        yield
    finally:
        os.close(handle)


def lock(handle: int, message: str, shared: bool = False, wait: bool = False) -> None:
    """Lock the open file or folder `handle` until it is closed; ValueError(message) if another process holds it.

    A shared lock keeps out those who want it alone. With `wait` it is taken as soon as the other process lets go.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise ValueError(message) from None


def parse_json(text: str | bytes) -> Any:
    """The value of JSON text; ValueError too for text that is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def checksum(path: str | Path, report: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal; `report` is told of each block of bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            digest.update(block)
            if report is not None:
                report(len(block))
    return digest.hexdigest()
