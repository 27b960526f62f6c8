"""Downloaded archives: unpacking the wanted members, and the plain sentences of a member."""

from __future__ import annotations

import errno
import html
import io
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from rela.data.corpus import raw_lines
from rela.data.download import DownloadError

# TypeError, RuntimeError: what tarfile makes of a gzip header cut short, and zipfile of an entry marked as encrypted
# UnicodeError: a zip entry whose name is marked as UTF-8 and is not
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    TypeError,
    RuntimeError,
    UnicodeError,
)

SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>", re.IGNORECASE)


def unpack(file: Path, members: list[str], folder: Path) -> dict[str, Path]:
    """Unpack the wanted members and nothing else; "" stands for the file itself.

    A member may lie in a folder that is not named. Only regular files are read and only our own names are
    written, so that no archive can reach outside the folder.
    """
    if members == [""]:
        return {"": file}
    found: dict[str, Path] = {}
    try:
        for name, opened in regular_files(file):
            if (member := match(name, members)) and member not in found:
                found[member] = folder / str(len(found)) / Path(member).name
                found[member].parent.mkdir(parents=True)
                with found[member].open("wb") as out, opened() as stream:
                    shutil.copyfileobj(stream, out)
    except (*DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: an offset before the file
            raise
        advice = f"delete it and {file.name}.sha256 to fetch it again"
        raise DownloadError(f"{file} cannot be unpacked ({error}); {advice}") from None
    if missing := [member for member in members if member not in found]:
        raise DownloadError(f"{file} holds no {', '.join(missing)}")
    return found


def regular_files(file: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """The name of each regular file in a zip or tar archive, and a function that opens it for reading."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as zipped:
            for name in zipped.namelist():
                yield name, partial(zipped.open, name)
    else:
        with tarfile.open(file, "r|*") as tar:
            for entry in tar:
                if entry.isfile():
                    yield entry.name, partial(open_entry, tar, entry)


def open_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    """The contents of a regular file in a tar archive."""
    return tar.extractfile(entry) or io.BytesIO()


def match(name: str, members: list[str]) -> str | None:
    """The wanted member that a name in an archive stands for."""
    return next((member for member in members if name == member or name.endswith(f"/{member}")), None)


def plain_text(path: Path) -> Iterator[bytes]:
    """The sentences of a file: of SGML and XML the segments, of IWSLT training text the lines that are no markup."""
    suffix = path.suffix
    for _, raw in raw_lines(path):
        line = raw or b""
        if suffix in (".sgm", ".xml"):
            for segment in SEGMENT.findall(line):
                yield html.unescape(segment.decode("utf-8", "replace")).strip().encode()
        elif not (path.name.startswith("train.tags.") and line.lstrip().startswith(b"<")):
            yield line.strip() if path.name.startswith("train.tags.") else line


def write_lines(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines and count them."""
    count = 0
    with path.open("wb") as file:
        for line in lines:
            file.write(line + b"\n")
            count += 1
    return count
