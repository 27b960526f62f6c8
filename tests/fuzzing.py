"""Files to damage, each with the call that reads it: the file is read, or refused in one line that names it.

    python -m tests.fuzzing --seconds 300 --processes 12 --out fuzzing.jsonl

changes each file at random, by bytes and by pieces that such files are made of, as often as the time allows. A row of
the output is a target with its executions, or an exception that nobody expected with the edits that led to it.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import signal
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from rela.alignment.choose import CHOICE, AlignmentChoice, load_choice, save_choice
from rela.alignment.fitted import FITTED, FittedAligner, LinkModule, load_fitted, save_fitted
from rela.cli import describe, is_expected
from rela.cluster.manifest import MANIFEST, open_manifest
from rela.commands.markup import translate_file
from rela.commands.resumable import ResumableOutput
from rela.config import DataConfig, load_config, save_config
from rela.data.archives import unpack
from rela.data.corpus import raw_lines, read_pairs
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords, pack_models
from rela.data.tables import table_rows
from rela.evaluation.link_files import GoldLinks, naacl, pharaoh, read_links, talp
from rela.filtering.detector import DETECTOR, Detector, load_detectors, save_detectors
from rela.filtering.score_store import JOB, RECORD, ScoreStore
from rela.hugging_face.convert import model_type
from rela.markup.glossary import Glossary
from rela.markup.passages import Passage
from rela.model.folder import CONFIG, SUBWORDS, WEIGHTS, load_folder, unique_weights
from rela.plots.curves import read_log
from rela.training.checkpoint import OPTIMISER, PROGRESS, Checkpoints
from tests.data.parallel_text import make_pairs, write_pairs
from tests.tiny_models import subwords, tiny_folder, tiny_translator

YAML = r"""{ } [ ] , : - ? ! & * | > % @ ` # ' " <<: *a &a !!int !!bool !!float !!binary !!set !!omap !!timestamp !!seq
!!python/none ~ null true .nan .inf 1e400 0x 0b 1_0 1:60 2001-99-99 --- ... %YAML train: model: steps: encoder_layers:
-1 999999999999"""
JSON = r"""{ } [ ] , : " \ null true NaN -Infinity 1e999 -1 0 9999999999999999999999 "shape" "dtype" "data_offsets" [[[[
"__metadata__" "F32" "BF16" "step" "event" "train" "nll" "ids" "splits" "weights" "shards" \ud800"""
MARKUP = r"""< > </ /> <b> </b> <p> <script> <![CDATA[ ]]> <!-- --> <![ <!DOCTYPE <?xml & &amp; &#0; &#x110000; ` ```
* ** _ [ ]( ) ![ # | --- 1. - > \ msgid msgstr msgctxt msgid_plural msgstr[0] #, #~ "
1 00:00:01,000 00:00:02,000 {0} %s $x <a href=" a dog"""
PIECES = {
    "yaml": [*YAML.split(), "\n", "\t", "\n  ", "\0", "\ufeff", "\u2028"],
    "json": [*JSON.split(), "\n", "\0", "[" * 100_000, '{"a":' * 20_000],
    "links": ["0-0", "1p2", "-", "p", "9", "999999999", "0001 1 1 S", "P", " ", "\n", "\t", "\r", ".5", "1e9", "٣-٣"],
    "markup": [
        *MARKUP.split(),
        "\n",
        "\n\n",
        "    ",
        "\t",
        "\0",
        "\u2028",
        "\u00a0",
        "<b>" * 2000,
        "[" * 2000,
        ">" * 2000,
    ],
    "bytes": ["\0", "\0\0\0\0", "\n", "PK\x03\x04", "\x1f\x8b", "\x28\xb5\x2f\xfd", "\xfd7zXZ"],
}
"""What files of a format are made of, which random bytes seldom hit."""


LONGEST = 30.0
"""Seconds that reading a file may take; they are all small."""
Edit = tuple[str, float, float, bytes]
"""What to do, where, how far, and with which bytes."""
KINDS = ("insert", "replace", "delete", "repeat", "cut")


def inserts(pieces: Sequence[str]) -> list[bytes]:
    return [piece.encode("utf-8", "surrogatepass") for piece in pieces if piece]


def random_edits(generator: random.Random, pieces: Sequence[bytes]) -> list[Edit]:
    """One to six edits."""

    def piece() -> bytes:
        return generator.choice(pieces) if generator.random() < 0.6 else generator.randbytes(generator.randint(1, 8))

    count = generator.randint(1, 6)
    return [(generator.choice(KINDS), generator.random(), generator.random(), piece()) for _ in range(count)]


def edited(content: bytes, edits: Sequence[Edit]) -> bytes:
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
        self.path, self.read, self.pieces = path, read, inserts(PIECES[pieces])
        self.content = path.read_bytes()

    def attempt(self, edits: Sequence[Edit]) -> None:
        """Read the file after edits."""
        self.attempt_content(edited(self.content, edits))

    def attempt_content(self, content: bytes) -> None:
        """Read other bytes in the place of the file; an exception must be one that the command line shows as a line."""
        self.path.write_bytes(content)
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
            assert self.path.name in message or self.path.parent.name in message

    def refuse(self) -> str:
        """The one line with which whatever lies at the path is refused, soon and without much memory."""
        try:
            with time_limit(LONGEST), memory_limit(1 << 30):
                self.read()
        except Exception as error:
            if not is_expected(error):
                raise
            return describe(error)
        raise AssertionError(f"{self.path} was read")

    def attack(self, executions: int, seed: int, until: float = float("inf")) -> tuple[int, list[str]]:
        """Read the file after each of many sets of edits: how many they were, and each exception nobody expected."""
        self.attempt([])
        generator, errors, count = random.Random(seed), dict[str, str](), 0
        while count < executions and time.monotonic() < until:
            edits = random_edits(generator, self.pieces)
            try:
                with time_limit(LONGEST):
                    self.attempt(edits)
            except Exception as error:
                shown = [(kind, where, far, piece[:40]) for kind, where, far, piece in edits]
                text = "".join(traceback.format_exception(error, limit=-4))[-1500:]
                errors.setdefault(f"{type(error)} {innermost(error)}", f"after {shown}\n{text}")
            count += 1
        return count, list(errors.values())


class TookTooLong(Exception):
    """Reading a file has not ended."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what takes longer, by an exception."""

    def end(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Ends what takes so many bytes more than the process has, by a MemoryError."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def innermost(error: BaseException) -> str:
    """The last place in our own code that an exception came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}rela{os.sep}" in frame.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


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


def model_weights(folder: Path) -> Target:
    tiny_folder(folder / "weighted")
    return Target(folder / "weighted" / WEIGHTS, lambda: load_folder(folder / "weighted"), "bytes")


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


def zst(text: bytes) -> bytes:
    import zstandard

    return bytes(zstandard.ZstdCompressor().compress(text))


def one_vocabulary(folder: Path) -> Target:
    path = folder / SUBWORDS
    subwords().save(path)
    return Target(path, lambda: Subwords.load(path).encode("a dog"), "bytes")


def model_subwords(folder: Path) -> Target:
    tiny_folder(folder / "worded")
    return Target(folder / "worded" / SUBWORDS, lambda: load_folder(folder / "worded"), "bytes")


def choice_file(folder: Path) -> Target:
    save_choice(folder, AlignmentChoice(1, (0, 1), True, 0.25))
    return Target(folder / CHOICE, lambda: load_choice(folder), "json")


def aligner_header(folder: Path) -> Target:
    translator = tiny_folder(folder / "aligning")
    save_fitted(folder / "aligning", FittedAligner(translator, LinkModule(translator.config.model.width), 1))
    return Target(folder / "aligning" / FITTED, lambda: load_fitted(translator), "json")


def detector_file(folder: Path) -> Target:
    rows = ((0.1, 0.2), (1.0, 2.0), (0.5, -0.5))
    detector = Detector(("null", "log"), *rows, 0.1, (0.3, 0.1), 0.0, thresholds={"warn": 0.9}, auroc={"cut": 0.8})
    save_detectors(folder, {"alone": detector})

    def read() -> object:
        return [found.score(torch.zeros(3, len(found.names)).numpy()) for found in load_detectors(folder).values()]

    return Target(folder / DETECTOR, read, "json")


def scores_of_blocks(folder: Path, name: str) -> Path:
    """A folder of scores of three blocks."""
    import numpy as np

    store = ScoreStore(folder / name, {"model": "m", "lines": 9})
    with store.writer(0) as writer:
        for block in range(3):
            writer.add(block, np.zeros(3, RECORD))
    return folder / name


def score_job(folder: Path) -> Target:
    scores = scores_of_blocks(folder, "job")
    return Target(scores / JOB, lambda: ScoreStore(scores, {"model": "m", "lines": 9}).read(), "json")


def score_journal(folder: Path) -> Target:
    scores = scores_of_blocks(folder, "journal")

    def read() -> object:
        store = ScoreStore(scores, {"model": "m", "lines": 9})
        found = store.read()
        with store.writer(0):
            return found

    target = Target(scores / "part-0000.journal", read, "json")
    part = scores / "part-0000.scores"
    content = part.read_bytes()

    def read_whole() -> object:
        part.write_bytes(content)  # the writer cuts off what its journal does not know
        return read()

    target.read = read_whole
    return target


def shard_manifest(folder: Path) -> Target:
    shards, job = folder / "shards", {"model": "m", "inputs": ["a.jsonl"]}

    def read() -> object:
        with open_manifest(shards, job) as manifest:
            manifest.finish()
            return manifest.done

    with open_manifest(shards, job) as manifest:
        for shard in range(3):
            manifest.add({"shard": shard, "file": f"{shard}.jsonl", "rows": 7})
    read()
    return Target(shards / MANIFEST, read, "json")


def partial_record(folder: Path) -> Target:
    out, lines = folder / "resumed.de", [f"line {number}" for number in range(9)]
    output = ResumableOutput(out, {"beam": 4})
    for line in lines[:5]:
        output.count(line)
    record = {"settings": {"beam": 4}, "lines": 5, "size": 10, "source": output.position.source.hexdigest()}
    output.record.write_text(json.dumps(record))
    written = output.record

    def read() -> object:
        output.partial.write_bytes(b"0\n1\n2\n3\n4\n")
        again, sources = ResumableOutput(out, {"beam": 4}), iter(lines)
        again.skip(sources)
        return list(sources)

    return Target(written, read, "json")


def hub_config(folder: Path) -> Target:
    (folder / "hub").mkdir()
    path = folder / "hub" / "config.json"
    path.write_text(json.dumps({"model_type": "rela", "width": 24, "heads": 2}))
    return Target(path, lambda: model_type(folder / "hub"), "json")


def glossary_file(folder: Path) -> Target:
    path = folder / "terms.tsv"
    path.write_text("# terms\ndog\tHund\nBig Ben\tBig Ben\nold man\talter Mann\n")
    return Target(path, lambda: Glossary.load(path), "links")


def table(folder: Path) -> Target:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"source": f"line {n}", "target": "Zeile", "id": n}) + "\n" for n in range(9)))
    return Target(path, lambda: list(table_rows(path, ("source", "target"))), "json")


DOCUMENTS = {
    "html": "<html><body><p>A <b>dog</b> and <a href='x'>a cat</a>.</p><!-- no --><pre>x</pre><ul><li>one</ul></body>",
    "xml": "<?xml version='1.0'?><a><b i='1'>A dog &amp; a <c>cat</c></b><![CDATA[ raw ]]></a>",
    "md": "# A dog\n\nSome *text* with `code` and [a link](x).\n\n- one\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n",
    "txt": "A dog barks.\n\nThe cat sleeps.\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,500\nA <i>dog</i>.\n\n2\n00:00:03,000 --> 00:00:04,000\nA cat.\n",
    "po": '#: a.c\nmsgid "A dog"\nmsgstr ""\n\n#, fuzzy\nmsgid "%d cat"\nmsgid_plural "%d cats"\nmsgstr[0] ""\n',
    "tagged": "A <b>dog</b> barks.\nNo tags < here\n",
}


class Unchanged:
    """Gives the text of each passage back."""

    def translate(self, passages: Sequence[Passage], escape: Callable[[str], str]) -> list[str]:
        return [escape(passage.text) for passage in passages]


def document(format: str) -> Callable[[Path], Target]:
    """A document whose passages are put back untranslated."""

    def make(folder: Path) -> Target:
        path = folder / f"document.{format}"
        path.write_text(DOCUMENTS[format])

        out = folder / f"out.{format}"
        return Target(path, lambda: translate_file(Unchanged(), path, out, format, 100), "markup")

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
    "vocabulary": one_vocabulary,
    "model vocabulary": model_subwords,
    "choice of heads": choice_file,
    "aligner": aligner_header,
    "detector": detector_file,
    "score job": score_job,
    "score journal": score_journal,
    "shards": shard_manifest,
    "partial output": partial_record,
    "hub config": hub_config,
    "glossary": glossary_file,
    "table": table,
    **{format: document(format) for format in DOCUMENTS},
    "text": text_file,
    "gz": compressed(".gz", gzip.compress),
    "xz": compressed(".xz", lzma.compress),
    "zst": compressed(".zst", zst),
    "zip": archive("zip"),
    "tar": archive("tar"),
    "tgz": archive("tgz"),
}


PARTS = {
    "model weights": model_weights,
    **{name: TARGETS[name] for name in ("model config", "model vocabulary", "choice of heads", "aligner", "detector")},
    **{name: TARGETS[name] for name in ("progress", "manifest", "vocabulary", "score job", "score journal", "shards")},
    **{name: TARGETS[name] for name in ("partial output", "hub config")},
}
"""Files that a command wrote into a folder and another reads from there, without being told their names."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""A file system in memory, for speed."""


def attack_all(seconds: float, processes: int, seed: int, out: Path) -> None:
    """Give each target the same share of the time, in so many processes, and write what was found."""
    names = [name for name in TARGETS if name != "zst" or has_zstandard()]
    share = seconds * processes / len(names)
    children = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                    rows = [attack_one(name, Path(folder), share / processes, seed + number) for name in names]
                (out.parent / f"{out.name}.{number}").write_text("".join(json.dumps(row) + "\n" for row in rows))
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    parts = [out.parent / f"{out.name}.{number}" for number in range(processes)]
    rows = [json.loads(line) for part in parts if part.is_file() for line in part.read_text().splitlines()]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for part in parts:
        part.unlink(missing_ok=True)
    for name in names:
        found = [row for row in rows if row["target"] == name]
        print(f"{name}: {sum(row['executions'] for row in found)}, {sum(len(row['errors']) for row in found)} errors")
    print(f"all: {sum(row['executions'] for row in rows)} executions")


def has_zstandard() -> bool:
    with contextlib.suppress(ImportError):
        import zstandard  # noqa: F401

        return True
    return False


def attack_one(name: str, folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """How often a target was attacked in so many seconds, and the first error that nobody expected."""
    row: dict[str, Any] = {"target": name, "seed": seed, "executions": 0, "errors": []}
    place = folder / name.replace(" ", "-")
    place.mkdir()
    try:
        target = TARGETS[name](place)
        row["executions"], row["errors"] = target.attack(10**9, seed, time.monotonic() + seconds)
    except Exception:
        row["errors"] = [traceback.format_exc()[-3000:]]
    shutil.rmtree(place, ignore_errors=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzzing.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    attack_all(options.seconds, options.processes, options.seed, options.out)


if __name__ == "__main__":
    main()
