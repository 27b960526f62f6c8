"""The models of a server: which one serves a request, and what each can be asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rela.alignment.choose import Aligner
from rela.config import DecodeConfig
from rela.decoding.translate import Scored, Translation, Translator, with_options
from rela.evaluation.alignment import Link
from rela.filtering.check import Checker, PairCheck
from rela.markup.documents import parse_document, translate_document
from rela.markup.translate import PassageTranslator
from rela.server.batching import BatchDone, Batcher, Task
from rela.server.languages import pair_of
from rela.server.settings import ServerSettings
from rela.web.refused import Refused

Pair = tuple[str, str]
"""Source and target."""
Observe = Callable[[str, BatchDone], None]
"""Told of each batch of the model of this name."""


@dataclass(frozen=True)
class Search:
    """How a request wants its translations searched; None is what the model's own config says."""

    beam: int | None = None
    nbest: int = 1
    length_penalty: float | None = None


class ServedModel:
    """A model with its worker: each call waits for a batch, and gives what the commands give for the same lines."""

    def __init__(
        self, name: str, translator: Translator, settings: ServerSettings, observe: Observe | None = None
    ) -> None:
        self.name, self.translator, self.settings = name, translator, settings
        self.source, self.target = languages_of(name, translator)
        self.aligner, self.checker = Aligner(translator), Checker(translator)
        options = {} if settings.precision is None else {"precision": settings.precision}
        self.decode: DecodeConfig = with_options(translator.config.decode, options)
        if self.decode.sampling:
            raise ValueError(f"the config of {name} asks for sampling; a server gives the best translation it finds")
        self.passages = PassageTranslator(translator, precision=self.decode.precision)
        self.batcher = Batcher(
            self.compute,
            name=name,
            batch=settings.batch,
            latency=settings.latency_ms / 1000,
            queue=settings.queue,
            done=None if observe is None else lambda measured: observe(name, measured),
        )

    async def translate(self, lines: list[str], search: Search) -> list[list[Translation]]:
        """The best translations of each line."""
        beam = self.decode.beam if search.beam is None else search.beam
        if search.nbest > beam:
            raise Refused(f"nbest is {search.nbest}; wanted at most the beam, {beam}")
        self.check_lengths("text", lines)
        return await self.batcher.submit(Task("translate", tuple(dataclasses.asdict(search).items())), lines)

    async def translate_documents(self, texts: list[str], format: str) -> list[str]:
        """Documents of a format of rela.markup in the other language, as `rela translate` writes them."""
        passages = [passage for text in texts for passage in parse_document(text, format).passages]
        sentences = self.passages.sentences(passages)
        if len(sentences) > self.settings.max_texts:
            most = self.settings.max_texts
            raise Refused(f"the request has {len(sentences):,} sentences; wanted at most {most:,}", 413)
        self.check_lengths("sentence", sentences)
        return await self.batcher.submit(Task("document", (("format", format),), alone=True), texts)

    async def check(self, pairs: list[Pair]) -> list[PairCheck]:
        """How good each target is as a translation of its source, and which of its words are in doubt."""
        self.check_pairs(pairs)
        return await self.batcher.submit(Task("check"), pairs)

    async def score(self, pairs: list[Pair]) -> list[Scored]:
        """The log-probability of each target given its source."""
        self.check_pairs(pairs)
        return await self.batcher.submit(Task("score"), pairs)

    async def align(self, pairs: list[Pair]) -> list[list[Link]]:
        """The word links of each pair."""
        self.check_pairs(pairs)
        return await self.batcher.submit(Task("align"), pairs)

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns; it may use the model, since it is called by the model's own worker."""
        return (await self.batcher.submit(Task("run", alone=True), [work]))[0]

    def check_pairs(self, pairs: list[Pair]) -> None:
        for name, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            self.check_lengths(name, list(texts))

    def check_lengths(self, name: str, texts: list[str]) -> None:
        """Refuse what the model would have to cut: half a sentence is no answer."""
        limit = self.translator.config.model.max_length - 1
        subwords = self.translator.subwords if name == "target" else self.translator.subwords.source
        for number, ids in enumerate(subwords.encode_batch(texts), start=1):
            if len(ids) > limit:
                raise Refused(f"{name} {number} has {len(ids)} subwords; the model takes at most {limit}", 413)

    def compute(self, task: Task, items: list[Any]) -> list[Any]:
        """One batch, in the worker's thread."""
        if task.name == "translate":
            return self.compute_translations(items, **dict(task.options))
        if task.name == "score":
            sources, targets = map(list, zip(*items, strict=True))
            scores = self.translator.score(sources, targets, precision=self.decode.precision)
            if not all(math.isfinite(scored.log_prob) for scored in scores):
                raise Refused("a log-probability is no finite number; are the model's weights?", 500)
            return scores
        if task.name == "align":
            return [sorted(links) for links in self.aligner.align(*zip(*items, strict=True))]
        if task.name == "check":
            return list(self.checker.check(items))
        if task.name == "document":
            return [translate_document(text, translator=self.passages, **dict(task.options)) for text in items]
        return [work() for work in items]

    def compute_translations(
        self, lines: list[str], beam: int | None, nbest: int, length_penalty: float | None
    ) -> list[list[Translation]]:
        given = {"beam": beam, "length_penalty": length_penalty, "precision": self.decode.precision}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return self.translator.translate_nbest(lines, nbest, **options)


class ServedModels:
    """Models by name, and by their languages."""

    def __init__(
        self, translators: Mapping[str, Translator], settings: ServerSettings, observe: Observe | None = None
    ) -> None:
        if not translators:
            raise ValueError("there is no model to serve; wanted at least one")
        self.by_name = {
            name: ServedModel(name, translator, settings, observe) for name, translator in translators.items()
        }

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.by_name.values())

    def start(self) -> None:
        for model in self:
            model.batcher.start()

    def close(self) -> None:
        for model in self:
            model.batcher.close()

    @property
    def are_working(self) -> bool:
        return all(model.batcher.is_working for model in self)

    def find(self, name: str | None, source: str | None, target: str | None) -> ServedModel:
        """The model of a name, or the first of these languages; what is None does not matter."""
        found = [
            model
            for model in self
            if name in (None, model.name) and source in (None, model.source) and target in (None, model.target)
        ]
        if found:
            return found[0]
        there = ", ".join(f"{model.name} ({model.source} to {model.target})" for model in self)
        fields = {"model": name, "source": source, "target": target}
        asked = ", ".join(f"{field} {value[:40]!r}" for field, value in fields.items() if value is not None)
        raise Refused(f"there is no model for {asked}; there is {there}", 404)


def languages_of(name: str, translator: Translator) -> tuple[str, str]:
    """The languages of a model: those its name says (en-de), or those its config says."""
    return pair_of(name) or translator.languages
