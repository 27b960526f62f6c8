"""Damaged and hostile files: each is read, or refused in one line that names it. No other exception may come out.

Real files are changed at random, by bytes and by pieces that such files are made of. `make test` tries some of them;
the campaign tries RELA_EXECUTIONS of each.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rela.cli import describe, is_expected
from rela.config import DataConfig, load_config, save_config
from rela.data.archives import unpack
from rela.data.corpus import raw_lines, read_pairs
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords, pack_models
from rela.evaluation.link_files import GoldLinks, naacl, pharaoh, read_links, talp
from rela.model.folder import CONFIG, WEIGHTS, load_folder, unique_weights
from rela.plots.curves import read_log
from rela.training.checkpoint import OPTIMISER, PROGRESS, Checkpoints
from tests.data.parallel_text import make_pairs, write_pairs
from tests.tiny_models import subwords, tiny_folder, tiny_translator

zstandard = pytest.importorskip("zstandard")  # not on every GPU machine, where these files are collected, too

EXECUTIONS = int(os.environ.get("RELA_EXECUTIONS", "5000"))
SHORT = 15

YAML = r"""{ } [ ] , : - ? ! & * | > % @ ` # ' " <<: *a &a !!int !!bool !!float !!binary !!set !!omap !!timestamp !!seq
!!python/none ~ null true .nan .inf 1e400 0x 0b 1_0 1:60 2001-99-99 --- ... %YAML train: model: steps: encoder_layers:
-1 999999999999"""
JSON = r"""{ } [ ] , : " \ null true NaN -Infinity 1e999 -1 0 9999999999999999999999 "shape" "dtype" "data_offsets" [[[[
"__metadata__" "F32" "BF16" "step" "event" "train" "nll" "ids" "splits" "weights" "shards" \ud800"""
PIECES = {
    "yaml": [*YAML.split(), "\n", "\t", "\n  ", "\0", "\ufeff", "\u2028"],
    "json": [*JSON.split(), "\n", "\0"],
    "links": ["0-0", "1p2", "-", "p", "9", "999999999", "0001 1 1 S", "P", " ", "\n", "\t", "\r", ".5", "1e9", "٣-٣"],
    "bytes": ["\0", "\0\0\0\0", "\n", "PK\x03\x04", "\x1f\x8b", "\x28\xb5\x2f\xfd", "\xfd7zXZ"],
}
"""What files of a format are made of, which random bytes seldom hit."""


def changes(pieces: list[str]) -> st.SearchStrategy[list[tuple[str, float, float, bytes]]]:
    """Edits of a file: what to do, where, how far, and with which bytes."""
    insert = st.one_of(
        st.sampled_from([piece.encode("utf-8", "surrogatepass") for piece in pieces if piece]),
        st.binary(min_size=1, max_size=8),
    )
    where = st.floats(0, 1, allow_nan=False)
    kind = st.sampled_from(["insert", "replace", "delete", "repeat", "cut"])
    return st.lists(st.tuples(kind, where, where, insert), min_size=1, max_size=6)


def edited(content: bytes, edits: list[tuple[str, float, float, bytes]]) -> bytes:
    """A file after edits; each is short but `cut` and `repeat`."""
    for kind, where, far, piece in edits:
        start = int(where * len(content))
        end = min(len(content), start + 1 + int(far * 40))
        if kind == "insert":
            content = content[:start] + piece + content[start:]
        elif kind == "replace":
            content = content[:start] + piece + content[end:]
        elif kind == "delete":
            content = content[:start] + content[end:]
        elif kind == "repeat":
            content = content[:start] + content[start:end] * 3 + content[end:]
        else:
            content = content[:start]
    return content


class Target:
    """A file of one format, and the call that reads it."""

    def __init__(self, path: Path, read: Callable[[], object], pieces: str) -> None:
        self.path, self.read, self.pieces = path, read, PIECES[pieces]
        self.content = path.read_bytes()

    def attack(self, examples: int) -> None:
        """Read the file after each of many sets of edits."""
        self.check()  # the file as it is

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(changes(self.pieces))
        def attempt(edits: list[tuple[str, float, float, bytes]]) -> None:
            self.path.write_bytes(edited(self.content, edits))
            self.check()

        attempt()

    def check(self) -> None:
        """Read the file; an exception must be one that the command line shows as one line."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.read()
        except Exception as error:
            if not is_expected(error):
                raise
            message = describe(error)
            assert "\n" not in message
            assert 0 < len(message) < 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzzing")


def config_file(folder: Path) -> Target:
    path = folder / "config.yaml"
    save_config(tiny_translator().config, path)
    return Target(path, lambda: load_config(path), "yaml")


def model_config(folder: Path) -> Target:
    tiny_folder(folder / "configured")
    return Target(folder / "configured" / CONFIG, lambda: load_folder(folder / "configured"), "yaml")


def model_header(folder: Path) -> Target:
    """The header alone is changed: its text, and in a third of the cases the length before it."""
    tiny_folder(folder / "model")
    weights = folder / "model" / WEIGHTS
    content = weights.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = folder / "header.json"
    header.write_bytes(content[8:size])

    def read() -> object:
        text = header.read_bytes()
        length = len(text) if len(text) % 3 else size - 8
        weights.write_bytes(length.to_bytes(8, "little") + text + content[size:])
        return load_folder(folder / "model")

    return Target(header, read, "json")


def log_file(folder: Path) -> Target:
    path = folder / "log.jsonl"
    rows = [{"event": "train", "step": step, "nll": 3.5, "tokens_per_second": 10.0} for step in range(3)]
    rows.append({"event": "valid", "step": 3, "nll": 3.5})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Target(path, lambda: read_log(path), "json")


def progress_file(folder: Path) -> Target:
    checkpoints = Checkpoints(folder / "checkpoints", keep=1)
    progress = {"step": 3, "position": None, "best_loss": 1.5, "bad_validations": 0, "batches": 1, "data": [1, 2, 3]}
    translator = tiny_translator()
    weights = unique_weights(translator.model)
    path = checkpoints.save(progress, translator.config, weights, dict(list(weights.items())[:1]), subwords().model)
    assert (path / OPTIMISER).is_file()
    return Target(path / PROGRESS, lambda: checkpoints.load(path), "json")


def manifest(folder: Path) -> Target:
    corpus = write_pairs(folder, "train", make_pairs(40))
    directory = folder / "prepared"
    prepare(DataConfig(root=str(folder), train=(corpus,), directory=str(directory), vocabulary_size=60), threads=1)

    def read() -> object:
        corpus = PreparedCorpus.open(directory, "train")
        return corpus.fingerprint, [corpus.pair(number) for number in range(len(corpus))]

    return Target(directory / "meta.json", read, "json")


LINKS = [GoldLinks(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (3, 3)})) for _ in range(12)]


def links_file(format: str, lines: list[str], one_based: bool) -> Callable[[Path], Target]:
    def make(folder: Path) -> Target:
        path = folder / f"links.{format}"
        path.write_text("\n".join(lines) + "\n")

        def read() -> object:
            return read_links(path, one_based), read_links(path, not one_based, flip=True, format=format)

        return Target(path, read, "links")

    return make


def two_vocabularies(folder: Path) -> Target:
    path = folder / "two.model"
    pack_models(subwords(), subwords()).save(path)
    return Target(path, lambda: Subwords.load(path).source.encode("a dog"), "bytes")


TEXT = "".join(f"line {number}\n" for number in range(300)).encode()


def compressed(suffix: str, compress: Callable[[bytes], bytes]) -> Callable[[Path], Target]:
    def make(folder: Path) -> Target:
        path = folder / f"text{suffix}"
        path.write_bytes(compress(TEXT))
        return Target(path, lambda: sum(1 for _ in raw_lines(path)), "bytes")

    return make


def text_file(folder: Path) -> Target:
    source, target = folder / "text.en", folder / "text.de"
    source.write_bytes(TEXT)
    target.write_bytes(TEXT)
    return Target(source, lambda: sum(1 for _ in read_pairs(source, target)), "bytes")


def archive(kind: str) -> Callable[[Path], Target]:
    def make(folder: Path) -> Target:
        path, out = folder / f"archive.{kind}", folder / f"unpacked-{kind}"
        buffer = io.BytesIO()
        if kind == "zip":
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
                zipped.writestr("folder/a.txt", TEXT)
        else:
            with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "tgz" else "w") as tar:
                entry = tarfile.TarInfo("folder/a.txt")
                entry.size = len(TEXT)
                tar.addfile(entry, io.BytesIO(TEXT))
        path.write_bytes(buffer.getvalue())

        def read() -> object:
            shutil.rmtree(out, ignore_errors=True)
            return unpack(path, ["a.txt"], out)

        return Target(path, read, "bytes")

    return make


TARGETS = {
    "config": config_file,
    "model config": model_config,
    "model header": model_header,
    "log": log_file,
    "progress": progress_file,
    "manifest": manifest,
    "talp": links_file("talp", [talp(gold) for gold in LINKS], one_based=False),
    "pharaoh": links_file("pharaoh", [pharaoh(gold.sure) for gold in LINKS], one_based=False),
    "naacl": links_file("naacl", list(naacl(LINKS)), one_based=True),
    "vocabularies": two_vocabularies,
    "text": text_file,
    "gz": compressed(".gz", gzip.compress),
    "xz": compressed(".xz", lzma.compress),
    "zst": compressed(".zst", zstandard.ZstdCompressor().compress),
    "zip": archive("zip"),
    "tar": archive("tar"),
    "tgz": archive("tgz"),
}
EVERY = pytest.mark.parametrize("name", TARGETS)


@EVERY
def test_a_damaged_file_is_read_or_refused_in_one_line(folder, name):
    TARGETS[name](folder).attack(SHORT)


@pytest.mark.campaign
@EVERY
def test_many_damaged_files_are_read_or_refused_in_one_line(folder, name):
    TARGETS[name](folder).attack(EXECUTIONS)
    print(f"\n{name}: {EXECUTIONS} executions")
