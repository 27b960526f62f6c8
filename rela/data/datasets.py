"""Known public corpora: where they are, what is in them, and how they become plain parallel text."""

from __future__ import annotations

import html
import importlib.util
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rela.data.corpus import raw_lines
from rela.data.download import DownloadError, download
from rela.progress import Progress


@dataclass(frozen=True)
class Archive:
    """A file on the web. Without a known checksum the first download is trusted and held to from then on."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class Part:
    """One parallel text: for each side its files, put together, each written "archive:path inside it"."""

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """A corpus as people cite it."""

    name: str
    languages: tuple[str, str]
    parts: tuple[Part, ...]
    homepage: str
    """Where its terms of use are."""
    cite: str
    note: str = ""

    def __str__(self) -> str:
        train = ", ".join(part.name.removeprefix("train.") for part in self.parts if part.name.startswith("train"))
        note = f" {self.note}" if self.note else ""
        return f"{self.name:16} {train}; cite {self.cite}; terms: {self.homepage}.{note}"


STATMT, DATA = "https://www.statmt.org", "https://data.statmt.org"
MULTI30K = ("https://raw.githubusercontent.com/multi30k/dataset/"
            "c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw")  # fmt: skip
IWSLT17 = "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts"

# The checksums are those that TensorFlow Datasets publishes for the same files.
ARCHIVES = {
    "europarl-v7": Archive(f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz",
                           "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
    "commoncrawl": Archive(f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz",
                           "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
    "news-commentary-v9": Archive(f"{STATMT}/wmt14/training-parallel-nc-v9.tgz",
                                  "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
    "un-2000": Archive(f"{STATMT}/wmt13/training-parallel-un.tgz"),
    "giga-fren": Archive(f"{STATMT}/wmt10/training-giga-fren.tar"),
    "europarl-v8-16": Archive(f"{DATA}/wmt16/translation-task/training-parallel-ep-v8.tgz",
                              "8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7"),
    "setimes-en-ro": Archive("https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip"),
    "europarl-v8-18": Archive(f"{DATA}/wmt18/translation-task/training-parallel-ep-v8.tgz",
                              "953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96"),
    "rapid2016": Archive(f"{DATA}/wmt18/translation-task/rapid2016.tgz",
                         "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a"),
    "paracrawl-v1-en-fi": Archive("https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
                                  "paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz",
                                  "ce3b46e928d37ae02ab8ce7e0ae0e1f89d1aed5e60271056913e35ff742e65ff"),
    "news-commentary-v13": Archive(f"{DATA}/wmt18/translation-task/training-parallel-nc-v13.tgz",
                                   "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91"),
    "un-v1-en-zh": Archive("https://storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz",
                           "6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49"),
    "wmt-dev": Archive(f"{DATA}/wmt19/translation-task/dev.tgz",
                       "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"),
    "iwslt14-de-en": Archive("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"),
    "iwslt17-en-de": Archive(f"{IWSLT17}/en/de/en-de.zip"),
    "iwslt17-en-fr": Archive(f"{IWSLT17}/en/fr/en-fr.zip"),
    **{f"multi30k-{name}.{language}": Archive(f"{MULTI30K}/{name}.{language}.gz")
       for name in ("train", "val", "test_2016_flickr") for language in ("en", "de", "fr")},
}  # fmt: skip


def part(name: str, archive: str, pattern: str, source: str, target: str) -> Part:
    """A part whose two files differ only in the language at {}."""
    return Part(name, (f"{archive}:{pattern.format(source)}",), (f"{archive}:{pattern.format(target)}",))


def news(name: str, test: str, source: str, target: str, other: str) -> Part:
    """A WMT news set in SGML, whose files are named after the direction into English."""
    pair = f"{other}en"
    files = {other: f"wmt-dev:dev/{test}-{pair}-src.{other}.sgm", "en": f"wmt-dev:dev/{test}-{pair}-ref.en.sgm"}
    return Part(name, (files[source],), (files[target],))


def iwslt(name: str, archive: str, tests: tuple[str, ...], pair: str, source: str, target: str) -> Part:
    """TED development or test sets of several years as one part."""
    sides = (tuple(f"{archive}:{test}.{pair}.{side}.xml" for test in tests) for side in (source, target))
    return Part(name, *sides)


def wmt14(other: str, *more: Part) -> Dataset:
    pair = f"{other}-en"
    return Dataset(f"wmt14-en-{other}", ("en", other), (
        part("train.europarl-v7", "europarl-v7", f"training/europarl-v7.{pair}.{{}}", "en", other),
        part("train.commoncrawl", "commoncrawl", f"commoncrawl.{pair}.{{}}", "en", other),
        part("train.news-commentary-v9", "news-commentary-v9", f"training/news-commentary-v9.{pair}.{{}}", "en", other),
        *more,
        part("valid", "wmt-dev", "dev/newstest2013.{}", "en", other),
        news("test", "newstest2014", "en", other, other),
    ), "https://www.statmt.org/wmt14/translation-task.html", "Bojar et al. (2014)")  # fmt: skip


def iwslt17(other: str) -> Dataset:
    name, pair = f"iwslt17-en-{other}", f"en-{other}"
    years = tuple(f"IWSLT17.TED.tst{year}" for year in range(2010, 2016))
    return Dataset(name, ("en", other), (
        part("train", name, f"train.tags.{pair}.{{}}", "en", other),
        iwslt("valid", name, ("IWSLT17.TED.dev2010",), pair, "en", other),
        iwslt("test", name, years, pair, "en", other),
    ), "https://wit3.fbk.eu", "Cettolo et al. (2017)", "The test set is tst2010 to tst2015 together.")  # fmt: skip


def multi30k(other: str) -> Dataset:
    def of(name: str, file: str) -> Part:
        return Part(name, (f"multi30k-{file}.en:",), (f"multi30k-{file}.{other}:",))

    return Dataset(f"multi30k-en-{other}", ("en", other), (
        of("train", "train"), of("valid", "val"), of("test", "test_2016_flickr"),
    ), "https://github.com/multi30k/dataset", "Elliott et al. (2016)")  # fmt: skip


DATASETS = {dataset.name: dataset for dataset in (
    wmt14("de"),
    wmt14("fr",
          part("train.un-2000", "un-2000", "un/undoc.2000.fr-en.{}", "en", "fr"),
          part("train.giga-fren", "giga-fren", "giga-fren.release2.fixed.{}.gz", "en", "fr")),
    Dataset("wmt16-ro-en", ("ro", "en"), (
        part("train.europarl-v8", "europarl-v8-16", "training-parallel-ep-v8/europarl-v8.ro-en.{}", "ro", "en"),
        part("train.setimes2", "setimes-en-ro", "SETIMES.en-ro.{}", "ro", "en"),
        news("valid", "newsdev2016", "ro", "en", "ro"),
        news("test", "newstest2016", "ro", "en", "ro"),
    ), "https://www.statmt.org/wmt16/translation-task.html", "Bojar et al. (2016)"),
    Dataset("wmt18-en-fi", ("en", "fi"), (
        part("train.europarl-v8", "europarl-v8-18", "training/europarl-v8.fi-en.{}", "en", "fi"),
        part("train.rapid2016", "rapid2016", "rapid2016.en-fi.{}", "en", "fi"),
        part("train.paracrawl-v1", "paracrawl-v1-en-fi", "paracrawl-release1.en-fi.zipporah0-dedup-clean.{}", "en", "fi"),
        news("valid", "newstest2017", "en", "fi", "fi"),
        news("test", "newstest2018", "en", "fi", "fi"),
    ), "https://www.statmt.org/wmt18/translation-task.html", "Bojar et al. (2018)", "Wiki titles are left out."),
    Dataset("wmt18-zh-en", ("zh", "en"), (
        part("train.news-commentary-v13", "news-commentary-v13", "news-commentary-v13.zh-en.{}", "zh", "en"),
        part("train.un-v1", "un-v1-en-zh", "en-zh/UNv1.0.en-zh.{}", "zh", "en"),
        news("valid", "newstest2017", "zh", "en", "zh"),
        news("test", "newstest2018", "zh", "en", "zh"),
    ), "https://www.statmt.org/wmt18/translation-task.html", "Bojar et al. (2018)",
        "The CWMT part of the task needs a registration and is left out."),
    Dataset("iwslt14-de-en", ("de", "en"), (
        part("train", "iwslt14-de-en", "train.tags.de-en.{}", "de", "en"),
        iwslt("valid", "iwslt14-de-en", ("IWSLT14.TED.dev2010", "IWSLT14.TEDX.dev2012"), "de-en", "de", "en"),
        iwslt("test", "iwslt14-de-en", tuple(f"IWSLT14.TED.tst{y}" for y in (2010, 2011, 2012)), "de-en", "de", "en"),
    ), "https://wit3.fbk.eu", "Cettolo et al. (2014)", "fairseq splits it otherwise: valid from train, all sets as test."),
    iwslt17("de"),
    iwslt17("fr"),
    multi30k("de"),
    multi30k("fr"),
)}  # fmt: skip


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


def unpack(file: Path, members: list[str], folder: Path) -> dict[str, Path]:
    """Unpack the wanted members and nothing else; "" stands for the file itself.

    A member may lie in a folder that is not named. Only regular files are read and only our own names are
    written, so that no archive can reach outside the folder.
    """
    if members == [""]:
        return {"": file}
    found: dict[str, Path] = {}

    def copy(member: str, stream: IO[bytes] | None) -> None:
        found[member] = folder / str(len(found)) / Path(member).name
        found[member].parent.mkdir(parents=True)
        with found[member].open("wb") as out:
            shutil.copyfileobj(stream or io.BytesIO(), out)

    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                for name in zipped.namelist():
                    if (member := match(name, members)) and member not in found:
                        with zipped.open(name) as stream:
                            copy(member, stream)
        else:
            with tarfile.open(file, "r|*") as tar:
                for entry in tar:
                    if (member := match(entry.name, members)) and member not in found and entry.isfile():
                        copy(member, tar.extractfile(entry))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        advice = f"delete it and {file.name}.sha256 to fetch it again"
        raise DownloadError(f"{file} cannot be unpacked ({error}); {advice}") from None
    if missing := [member for member in members if member not in found]:
        raise DownloadError(f"{file} holds no {', '.join(missing)}")
    return found


def match(name: str, members: list[str]) -> str | None:
    """The wanted member that a name in an archive stands for."""
    return next((member for member in members if name == member or name.endswith(f"/{member}")), None)


SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>", re.IGNORECASE)


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
