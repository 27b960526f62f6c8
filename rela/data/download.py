"""Download a file so that it arrives whole: resumed where it broke off, checked, and only then given its name."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from rela.files import checksum, write_text
from rela.progress import Progress

BLOCK = 1 << 16


class DownloadError(ValueError):
    """A file could not be had; the message says in one line why, and what to do."""


class Interrupted(Exception):
    """The connection failed; the bytes that came are kept and another attempt may go on from there."""


def download(
    url: str,
    path: Path,
    sha256: str | None = None,
    progress: Progress | None = None,
    *,
    attempts: int = 4,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Fetch a URL to a path, or find it there, and verify its checksum.

    With no known `sha256` the first complete download is trusted: its checksum is stored beside the file, as
    NAME.sha256, and the file is held to it from then on.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url} is no http or https address")
    noted = path.with_name(path.name + ".sha256")
    if sha256 is None and noted.exists():
        sha256 = noted.read_text().split()[0]
    if path.exists():
        if sha256 is not None and checksum(path) != sha256:
            advice = "delete it to fetch it again"
            raise DownloadError(f"{path} is not the file it was (its SHA-256 is not {sha256}); {advice}")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    fetch_with_retries(url, part, progress, attempts, pause, timeout)
    found = checksum(part)
    if sha256 is not None and found != sha256:
        part.unlink()
        raise DownloadError(f"{url} gave a file with SHA-256 {found}; wanted {sha256}")
    write_text(noted, f"{found}  {path.name}\n")
    os.replace(part, path)
    tag_of(part).unlink(missing_ok=True)
    return path


def fetch_with_retries(
    url: str, part: Path, progress: Progress | None, attempts: int, pause: float, timeout: float
) -> None:
    """Try until the file is complete; an attempt that brought new bytes does not count as failed."""
    failed = 0
    while True:
        before = size_of(part)
        try:
            return fetch(url, part, progress, timeout)
        except Interrupted as error:
            failed = 1 if size_of(part) > before else failed + 1
            if failed >= attempts:
                kept = size_of(part)
                advice = f"; {kept:,} bytes are kept, run the command again to go on" if kept else ""
                raise DownloadError(f"{url}: {error}{advice}") from None
            time.sleep(pause * 2 ** (failed - 1))


def fetch(url: str, part: Path, progress: Progress | None, timeout: float) -> None:
    """One attempt: append what is missing to the partial file, or start it anew if the server wants that."""
    offset = size_of(part)
    request = urllib.request.Request(url, headers={"User-Agent": "rela"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if tag_of(part).exists():  # go on only if the file on the server is still the same
            request.add_header("If-Range", tag_of(part).read_text())
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            receive(response, part, offset, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing after the offset: complete, or not the file that was begun
            if error.headers.get("Content-Range") == f"bytes */{offset}":
                return
            part.unlink()
            raise Interrupted("the file on the server has changed") from None
        if error.code in (408, 429) or error.code >= 500:
            raise Interrupted(f"{error.code} {error.reason}") from None
        raise DownloadError(f"{url}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise Interrupted(f"no connection ({error.reason}); are you offline?") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise Interrupted(f"the connection broke ({type(error).__name__})") from None


def receive(response: http.client.HTTPResponse, part: Path, offset: int, progress: Progress | None) -> None:
    """Write the body of a response; Interrupted if it is shorter than the server said."""
    if response.status == 206:
        span = response.headers.get("Content-Range", "")
        if not span.startswith(f"bytes {offset}-"):
            raise Interrupted(f"asked for bytes from {offset}, the server sent {span or 'others'}")
    else:
        offset = 0
        if tag := response.headers.get("ETag") or response.headers.get("Last-Modified"):
            tag_of(part).write_text(tag)
        else:
            tag_of(part).unlink(missing_ok=True)
    length = response.headers.get("Content-Length")
    total = offset + int(length) if length and length.isdigit() else None
    with part.open("ab" if offset else "wb") as file:
        while block := response.read(BLOCK):
            file.write(block)
            offset += len(block)
            if progress:
                progress(f"downloading {part.stem}", offset, total)
    if total is not None and offset != total:
        raise Interrupted(f"the connection broke after {offset:,} of {total:,} bytes")


def tag_of(part: Path) -> Path:
    """Where the server's name for the version of a partial file is kept."""
    return part.with_name(part.name + ".tag")


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0
