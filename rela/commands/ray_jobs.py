"""What `--on ray` does to the rows of a shard, one class for each command; `rela.cluster` hands the shards out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rela.cluster.inputs import Row, Shard
from rela.cluster.ray_data import Work


@dataclass(frozen=True)
class TranslateRows:
    """Translations, as `rela translate` prints them."""

    models: list[str]
    options: dict[str, Any]
    nbest: int
    alignments: bool
    scores: bool
    format: str
    device: str

    def describe(self) -> dict[str, Any]:
        from rela.alignment.choose import CHOICE

        links = {"links": files_identity(self.models, CHOICE)} if self.alignments else {}
        models = [model_identity(model) for model in self.models]
        return {"command": "translate", **vars(self), "models": models, **links}

    def start(self) -> Work:
        import rela
        from rela.commands.translated_lines import Columns, make_links
        from rela.decoding.windows import WINDOW

        translator: Any = rela.load(self.models, self.device)
        links = make_links(translator) if self.alignments else None
        columns = Columns(self.nbest, self.scores, self.alignments, self.format)

        def translate(shard: Shard, rows: list[Row]) -> bytes:
            sources = [text_of(shard, number, row[0]) for number, row in enumerate(rows)]
            groups = translator.translate_stream(sources, self.nbest, WINDOW, links, first=shard.first, **self.options)
            lines = [
                columns.line(shard.first + number, rank, line, item)
                for number, (line, group) in enumerate(zip(sources, groups, strict=True))
                for rank, item in enumerate(group)
            ]
            return as_text(lines)

        return translate


@dataclass(frozen=True)
class AlignRows:
    """Word links, as `rela align` prints them; every worker reads the same heads."""

    model: str
    reverse: str | None
    choices: tuple[Any, Any]
    """Of the model and of the reverse one, which has none where it is None."""
    fitted: bool
    """Whether links are read by the models' trained aligners, and not from heads."""
    symmetrise: str | None
    tokenised: bool
    device: str

    def describe(self) -> dict[str, Any]:
        from rela.alignment.fitted import FITTED
        from rela.alignment.joint import JOINT

        folders = [model for model in (self.model, self.reverse) if model]
        models = [model_identity(model) for model in folders]
        choices = [str(choice) for choice in self.choices]
        links = {"links": files_identity(folders, FITTED, JOINT)} if self.fitted else {}
        return {"command": "align", **vars(self), "model": models, "reverse": None, "choices": choices, **links}

    def start(self) -> Work:
        from rela.alignment.choose import Aligner
        from rela.alignment.corpus import align_corpus
        from rela.commands.align import trained_aligner
        from rela.decoding.translate import Translator
        from rela.evaluation.alignment import pharaoh

        def load(model: str, choice: Any) -> Aligner:
            return Aligner(Translator.load(model, self.device), choice, self.tokenised)

        forward: Any = load(self.model, self.choices[0])
        backward = None if self.reverse is None else load(self.reverse, self.choices[1])
        if self.fitted:
            forward, backward = trained_aligner(forward, backward), None

        def align(shard: Shard, rows: list[Row]) -> bytes:
            pairs = pairs_of(shard, rows)
            with numbered_warnings(shard.first):
                return as_text([pharaoh(links) for links in align_corpus(forward, pairs, backward, self.symmetrise)])

        return align


@dataclass(frozen=True)
class CheckRows:
    """What `rela check` prints of each pair; the line of titles of its table is in the first shard."""

    model: str
    reverse: str | None
    detector: str | None
    """The fingerprint of what scores are made with; None of a model that is not calibrated."""
    format: str
    device: str
    links: bool = False
    """Whether words are judged by links of a trained aligner too."""

    def describe(self) -> dict[str, Any]:
        models = [model_identity(model) for model in (self.model, self.reverse) if model]
        return {"command": "check", **vars(self), "model": models, "reverse": None}

    def start(self) -> Work:
        from rela.commands.check import written
        from rela.decoding.translate import Translator
        from rela.filtering.check import Checker

        backward = None if self.reverse is None else Translator.load(self.reverse, self.device)
        checker = Checker(Translator.load(self.model, self.device), backward)

        def check(shard: Shard, rows: list[Row]) -> bytes:
            lines: list[str] = []
            checks = checker.check(pairs_of(shard, rows), first=shard.first + 1)
            for _ in written(checks, lines.append, self.format, titles=shard.number == 0):
                pass
            return as_text(lines)

        return check


@dataclass(frozen=True)
class ScoreRows:
    """Null rate and log-probability of pairs, as `rela filter` stores them."""

    model: str
    reverse: str | None
    combined: bool
    """Whether the combined score of `rela check` is wanted too."""
    device: str

    def describe(self) -> dict[str, Any]:
        return {"command": "filter", **vars(self)}

    def start(self) -> Work:
        from rela.decoding.translate import Translator
        from rela.filtering.combined_scorer import CombinedScorer
        from rela.filtering.score_corpus import score_block

        translator = Translator.load(self.model, self.device)
        backward = None if self.reverse is None else Translator.load(self.reverse, self.device)
        scorer = CombinedScorer(translator, backward) if self.combined else None

        def score(shard: Shard, rows: list[Row]) -> bytes:
            return score_block(translator, [(row[0], row[1]) for row in rows], scorer).tobytes()

        return score


def refuse_on_ray(on: str, given: dict[str, Any]) -> None:
    """Refuse another engine than Ray, and options that a shard by itself cannot serve."""
    if on != "ray":
        raise ValueError(f"on is {on!r}; wanted ray")
    if refused := [f"--{name}" for name, value in given.items() if value]:
        raise ValueError(f"{', '.join(refused)} cannot be used with --on ray; leave them out")


def write_on_ray(
    job: Any, models: list[str], files: list[Any], out: Path | None, workers: int | None, shard_lines: int
) -> None:
    """Do a job on the shards of a corpus; prints the folder of the results."""
    from rela.cluster.inputs import shards_of
    from rela.cluster.ray_data import Workers, write_shards
    from rela.commands.outputs import check_outside
    from rela.filtering.fingerprint import file_fingerprint
    from rela.terminal import progress_bars

    if out is None or None in files:
        raise ValueError("--on ray reads files and writes a folder of shards; wanted SRC and --out FOLDER")
    check_outside([out], models)
    shards = shards_of(files, shard_lines)
    corpus = {"corpus": [file_fingerprint(file) for file in files], "shard_lines": shard_lines}
    ending = {"jsonl": "jsonl", "tsv": "tsv"}.get(getattr(job, "format", ""), "txt")
    with progress_bars() as progress:
        write_shards(job, corpus, shards, out, ending, Workers(workers, job.device), progress)
    print(out)


def align_on_ray(
    on: str,
    aligners: tuple[Any, Any, bool],
    symmetrise: str | None,
    files: tuple[Path, Path],
    out: Path | None,
    workers: int | None,
    shard_lines: int,
    device: str,
) -> None:
    """`rela align` by workers that read what these aligners read; heads are chosen here where they are not yet.

    `aligners` are that of the model, that of the reverse model or None, and whether the trained ones are to be used.
    """
    from rela.commands.align import with_choice
    from rela.data.corpus import read_pairs

    refuse_on_ray(on, {})
    forward, backward, fitted = aligners
    if not fitted:
        next(with_choice(forward, backward, read_pairs(*files)), None)
    folders = [str(forward.translator.folder), None if backward is None else str(backward.translator.folder)]
    choices = (forward.choice, None if backward is None else backward.choice)
    job = AlignRows(folders[0] or "", folders[1], choices, fitted, symmetrise, forward.tokenised, device)
    write_on_ray(job, [folder for folder in folders if folder], list(files), out, workers, shard_lines)


def score_on_ray(
    scorer: Any,
    source: Path,
    target: Path,
    folder: Path,
    *,
    on: str,
    workers: int | None,
    device: str,
    rank: int = 0,
    world: int = 1,
    progress: Any = None,
) -> Any:
    """`score_corpus` by Ray: the same blocks in the same store, so that either can go on with what the other began."""
    import numpy as np

    from rela.cluster.inputs import shards_of
    from rela.cluster.ray_data import Workers, map_shards
    from rela.filtering.combined_scorer import CombinedScorer
    from rela.filtering.score_corpus import BLOCK, open_store
    from rela.filtering.score_store import RECORD

    refuse_on_ray(on, {"nproc-per-node of torchrun": world > 1})
    combined = isinstance(scorer, CombinedScorer)
    translator, backward = (scorer.forward, scorer.backward) if combined else (scorer, None)
    job = ScoreRows(str(translator.folder), str(backward.folder) if backward else None, combined, device)
    store = open_store(scorer, source, target, folder)
    done = set(store.finished())
    shards = shards_of([source, target], BLOCK)
    total, seen = sum(shard.rows for shard in shards), sum(shard.rows for shard in shards if shard.number in done)
    left = [shard for shard in shards if shard.number not in done]
    with store.writer(rank) as writer:
        for result in map_shards(job, left, Workers(workers, device)):
            if result.shard not in done:  # a worker that died may have been done with it
                writer.add(result.shard, np.frombuffer(result.data, RECORD))
                done.add(result.shard)
                seen += result.rows
            if progress is not None:
                progress("scored", seen, total)
    return store


def pairs_of(shard: Shard, rows: list[Row]) -> list[tuple[str, str]]:
    """The sentence pairs of a shard."""
    return [(text_of(shard, i, row[0]), text_of(shard, i, row[1], side=1)) for i, row in enumerate(rows)]


def text_of(shard: Shard, number: int, raw: bytes | None, side: int = 0) -> str:
    """The text of a row's side; what is no text is an error that names the file and the line."""
    from rela.data.corpus import EMPTY, CorpusError, decode_line

    text, problem = decode_line(raw)
    if problem and problem != EMPTY:
        path = shard.ranges[min(side, len(shard.ranges) - 1)].path  # a table has both sides
        raise CorpusError(f"{path}, line {shard.first + number + 1}: {problem}")
    return text


def as_text(lines: list[str]) -> bytes:
    """Lines as the bytes of a file."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def model_identity(folder: str) -> str:
    """What tells a model from another: the fingerprint of its weights."""
    from rela.filtering.fingerprint import file_fingerprint
    from rela.model.folder import WEIGHTS, find_model

    return file_fingerprint(Path(find_model(folder)) / WEIGHTS)


def files_identity(folders: list[str], *names: str) -> list[str]:
    """What tells files in model folders from others of the same name, such as those that word links are read by."""
    from rela.filtering.fingerprint import file_fingerprint
    from rela.model.folder import find_model

    paths = [Path(find_model(folder)) / name for folder in folders for name in names]
    return [file_fingerprint(path) for path in paths if path.is_file()]


@contextmanager
def numbered_warnings(first: int) -> Iterator[None]:
    """Within this, warnings about `line N` of a shard are given with the line of the corpus."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for item in caught:
        message = re.sub(r"^line (\d+)", lambda found: f"line {int(found[1]) + first}", str(item.message))
        warnings.warn(message, item.category, stacklevel=2)
