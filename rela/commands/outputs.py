"""Where a command may write: not over what it reads, and not into a model folder."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from rela.files import is_written_into


def check_outputs(
    outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = (), models: Iterable[Path | str] = ()
) -> None:
    """Refuse, before any work, an output that is an input, by any name, or lies in a model folder, or is a folder.

    So is one in a folder that nothing can be written into.
    An input of None or "-" is the standard input. What is no regular file, such as /dev/null, may be both.
    """
    wanted = [path for path in outputs if path is not None and not is_written_into(path)]
    read = {identity(path): "an input" for path in inputs}
    models = model_folders(models)
    for folder in models:
        read |= {identity(file): f"a file of the model {folder}" for file in folder.glob("*")}
    read.pop(None, None)
    for path in wanted:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if what := read.get(identity(path)):
            raise ValueError(f"{path} is {what}; wanted another file to write")
        if double := [other for other in wanted if other is not path and same(path, other)]:
            raise ValueError(f"{path} and {double[0]} are one file; wanted one for each output")
        check_writable(path)
    check_outside(wanted, models)


def check_writable(path: Path) -> None:
    """Refuse a file, to be written when the work is done, in a folder that nothing can be written into."""
    folder = next(one for one in Path(os.path.realpath(path)).parents if one.is_dir())
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_outside(outputs: Iterable[Path], models: Iterable[Path | str]) -> None:
    """Refuse outputs, files or folders, that are a model folder or lie in one."""
    for folder in model_folders(models):
        for path in outputs:
            if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
                raise ValueError(f"{path} lies in the model folder {folder}; wanted another place to write")


def model_folders(paths: Iterable[Path | str]) -> list[Path]:
    """The model folders that paths mean; what is none is for others to refuse."""
    from rela.model.folder import find_model

    return [find_model(path) for path in paths if Path(path).is_dir()]


def check_only_ours(folder: Path) -> None:
    """Refuse to replace a model folder that holds files of somebody else, which would then lie beside another model."""
    from rela.model.folder import OURS, WEIGHTS

    for file in sorted(folder.glob("*")) if (folder / WEIGHTS).is_file() else ():
        if not OURS.fullmatch(file.name):
            raise ValueError(f"{folder} holds {file.name}, which would be lost; move it away or write elsewhere")


def same(one: Path, other: Path) -> bool:
    """Whether two paths, whose files need not be there, are one file."""
    key = identity(one)
    return os.path.realpath(one) == os.path.realpath(other) or (key is not None and key == identity(other))


def identity(path: Path | str | None) -> tuple[int, int] | None:
    """What all names of one regular file have in common; None for anything else."""
    try:
        status = os.fstat(sys.stdin.fileno()) if path is None or str(path) == "-" else os.stat(path)
    except (OSError, ValueError):  # not there; a stdin that is no file
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
