"""What `--on ray` does to the rows of a shard, one class for each command; `rela.cluster` hands the shards out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
        return {"command": "translate", **vars(self), "models": [model_identity(model) for model in self.models]}

    def start(self) -> Work:
        import rela
        from rela.commands.translate import make_links, translation_line
        from rela.decoding.windows import WINDOW

        translator: Any = rela.load(self.models, self.device)
        links = make_links(translator) if self.alignments else None

        def translate(shard: Shard, rows: list[Row]) -> bytes:
            sources = [text_of(shard, number, row[0]) for number, row in enumerate(rows)]
            with numbered_warnings(shard.first):
                groups = list(translator.translate_stream(sources, self.nbest, WINDOW, links, **self.options))
            lines = [
                translation_line(shard.first + number, rank, line, item, self.nbest, self.scores, self.format)
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
    symmetrise: str | None
    tokenised: bool
    device: str

    def describe(self) -> dict[str, Any]:
        models = [model_identity(model) for model in (self.model, self.reverse) if model]
        choices = [str(choice) for choice in self.choices]
        return {"command": "align", **vars(self), "model": models, "reverse": None, "choices": choices}

    def start(self) -> Work:
        from rela.alignment.choose import Aligner
        from rela.alignment.corpus import align_corpus
        from rela.decoding.translate import Translator
        from rela.evaluation.alignment import pharaoh

        aligners = [
            None if model is None else Aligner(Translator.load(model, self.device), choice, self.tokenised)
            for model, choice in zip((self.model, self.reverse), self.choices, strict=True)
        ]
        forward, backward = aligners
        assert forward is not None

        def align(shard: Shard, rows: list[Row]) -> bytes:
            pairs = [(text_of(shard, i, row[0]), text_of(shard, i, row[1])) for i, row in enumerate(rows)]
            with numbered_warnings(shard.first):
                return as_text([pharaoh(links) for links in align_corpus(forward, pairs, backward, self.symmetrise)])

        return align


@dataclass(frozen=True)
class ScoreRows:
    """Null rate and log-probability of pairs, as `rela filter` stores them."""

    model: str
    device: str
    described: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return self.described

    def start(self) -> Work:
        from rela.decoding.translate import Translator
        from rela.filtering.score_corpus import score_block

        translator = Translator.load(self.model, self.device)

        def score(shard: Shard, rows: list[Row]) -> bytes:
            return score_block(translator, [(row[0], row[1]) for row in rows]).tobytes()

        return score


def text_of(shard: Shard, number: int, raw: bytes | None) -> str:
    """The text of a row's side; what is no text is an error that names the file and the line."""
    from rela.data.corpus import EMPTY, CorpusError, decode_line

    text, problem = decode_line(raw)
    if problem and problem != EMPTY:
        raise CorpusError(f"{shard.places[0].path}, line {shard.first + number + 1}: {problem}")
    return text


def as_text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def model_identity(folder: str) -> str:
    """What tells a model from another: the fingerprint of its weights."""
    from rela.filtering.fingerprint import file_fingerprint
    from rela.model.folder import WEIGHTS, find_model

    return file_fingerprint(Path(find_model(folder)) / WEIGHTS)


@contextmanager
def numbered_warnings(first: int) -> Iterator[None]:
    """Within this, warnings about `line N` of a shard are given with the line of the corpus."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for item in caught:
        message = re.sub(r"^line (\d+)", lambda found: f"line {int(found[1]) + first}", str(item.message))
        warnings.warn(message, item.category, stacklevel=2)
