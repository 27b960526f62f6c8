"""Public corpora as plain parallel text: downloaded, unpacked, and written one file a part and language."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rela.data.archives import plain_text, unpack, write_lines
from rela.data.download import DownloadError, download
from rela.data.known_datasets import ARCHIVES, DATASETS, Dataset, Part
from rela.progress import Progress


def list_datasets() -> list[Dataset]:
    """The corpora that `get_dataset` knows by name."""
    return list(DATASETS.values())


def get_dataset(
    name: str, directory: str | Path, progress: Progress | None = None, *, attempts: int = 4, pause: float = 1.0
) -> list[Path]:
    """Download a corpus and write it as plain text, one file a part and language; returns these files.

    "mtdata:ID" gets any corpus that the `mtdata` package knows. What is already there is not fetched again, a
    broken download goes on where it stopped, after up to `attempts` tries with growing pauses in between.
    """
    directory = Path(directory)
    if name.startswith("mtdata:"):
        return get_from_mtdata(name.removeprefix("mtdata:"), directory)
    if name not in DATASETS:
        raise DownloadError(f"no dataset {name!r}; known are {', '.join(DATASETS)}, and mtdata:ID")
    dataset = DATASETS[name]
    files: list[Path] = []
    for text in dataset.parts:
        targets = [directory / name / f"{text.name}.{language}" for language in dataset.languages]
        if not all(path.exists() for path in targets):
            write_part(text, targets, directory / "downloads", progress, attempts, pause)
        files += targets
    return files


def write_part(
    text: Part, targets: list[Path], downloads: Path, progress: Progress | None, attempts: int, pause: float
) -> None:
    """Write both sides of a part, whole or not at all."""
    wanted: dict[str, list[str]] = {}
    for reference in (*text.source, *text.target):
        archive, _, member = reference.partition(":")
        wanted.setdefault(archive, []).append(member)
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets[0].parent, prefix=".unpacking-") as temporary:
        found: dict[str, Path] = {}
        for key, members in wanted.items():
            source = ARCHIVES[key]
            file = downloads / key / source.url.rpartition("/")[2]
            download(source.url, file, source.sha256, progress, attempts=attempts, pause=pause)
            for member, path in unpack(file, members, Path(temporary) / key).items():
                found[f"{key}:{member}"] = path
        counts = []
        for number, references in enumerate((text.source, text.target)):
            plain = Path(temporary) / f"side-{number}"
            counts.append(write_lines(plain, (line for name in references for line in plain_text(found[name]))))
        if counts[0] != counts[1]:
            raise DownloadError(f"{text.name}: {counts[0]} lines on one side, {counts[1]} on the other")
        for number, target in enumerate(targets):
            os.replace(Path(temporary) / f"side-{number}", target)


def get_from_mtdata(identifier: str, directory: Path) -> list[Path]:
    """Let the `mtdata` command fetch a corpus by its own name, such as Statmt-europarl-7-deu-eng."""
    if importlib.util.find_spec("mtdata") is None:
        raise DownloadError(f"mtdata:{identifier} needs the mtdata package: pip install 'rela-attention[datasets]'")
    languages = identifier.split("-")[-2:]
    if len(identifier.split("-")) < 5:
        raise DownloadError(f"mtdata:{identifier}; wanted Group-name-version-language-language")
    out = directory / identifier
    command = [sys.executable, "-m", "mtdata", "get", "-l", "-".join(languages), "-tr", identifier, "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DownloadError(f"mtdata could not get {identifier}: {last}")
    return sorted((out / "train-parts").glob(f"{identifier}.*"))
