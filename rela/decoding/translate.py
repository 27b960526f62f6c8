"""Text to text: a model with its vocabulary, and everything one asks of it."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from rela.config import Config, DecodeConfig
from rela.config.schema import MAX_BEAM, SAMPLING_OPTIONS
from rela.data.batch import Batch
from rela.data.subwords import EOS, UNK, Subwords, has_no_break
from rela.decoding.background import ClosableLock
from rela.decoding.beam import Hypothesis
from rela.decoding.engines.ensemble import EnsembleEngines
from rela.decoding.engines.gpu_search import Watch
from rela.decoding.even_packing import IdPair, pack_evenly
from rela.decoding.pipeline import Pipeline, Request
from rela.decoding.rerank import Reranker
from rela.decoding.windows import WINDOW
from rela.device import pick_device
from rela.evaluation.alignment import Link
from rela.model.folder import ModelFolderError, find_model, load_folder, save_folder, unique_weights
from rela.model.transformer import Transformer


class LinkReader(Protocol):
    """Reads the word links of a translation from cross attention; `rela.alignment.online.OnlineLinks` is one."""

    @property
    def layer(self) -> int:
        """The decoder layer to be watched."""
        ...

    @property
    def heads(self) -> tuple[int, ...] | None:
        """The heads of that layer whose weights `read_batch` takes; None for all."""
        ...

    def read(
        self, source: Sequence[int], target: Sequence[int], attention: Tensor | None, text: str = ""
    ) -> frozenset[Link]:
        """Links of subword ids, from that layer's weights [H, T, S]; None where the engine does not give them.

        `text` is that of the source, where it has no-break spaces, which subwords do not tell from plain ones.
        """
        ...

    def read_batch(self, source: Tensor, target: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
        """The same of many pairs on any device, as `rela.decoding.engines.gpu_search.ReadLinks` says."""
        ...


class PairTooLong(ValueError):
    """A sentence pair has more subwords than the model has positions."""


@dataclass(frozen=True)
class Translation:
    """One translation of one sentence."""

    text: str
    score: float
    """Log-probability over the length penalty; what search ranks by."""
    log_prob: float
    tokens: tuple[int, ...]
    """Subword ids, without </s>."""
    links: Set[Link] | None = None
    """(source word, target word), where links were asked for."""


@dataclass(frozen=True)
class Scored:
    """How probable a model finds a given translation."""

    pieces: tuple[str, ...]
    """The target's subwords and </s>."""
    log_probs: tuple[float, ...]
    """One for each piece."""

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


class Translator:
    """A Transformer and its subwords: translates and scores text.

        model = rela.load("runs/model")
        model.translate(["A dog is sleeping ."])

    One thread at a time: search on a GPU has buffers of its own that are used again.
    """

    def __init__(self, model: Transformer, subwords: Subwords, config: Config, device: str = "auto") -> None:
        if any(side.size != config.model.vocabulary_size for side in (subwords, subwords.source)):
            raise ModelFolderError(
                f"the subword model has {subwords.size} pieces and the Transformer "
                f"{config.model.vocabulary_size}; wanted equal"
            )
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.subwords = subwords
        self.config = config
        self.folder: Path | None = None
        self.members: tuple[Translator, ...] = ()
        """The models of an ensemble."""
        self.pipeline = Pipeline(self.model, self.device)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Translator:
        """The model of a folder (safetensors, YAML, SentencePiece), or of a run's folder."""
        model, config, subwords = load_folder(path)
        path = find_model(path)
        try:
            translator = cls(model, Subwords(subwords), config, device)
        except ValueError as error:
            raise ModelFolderError(f"{path}: {error}") from None
        translator.folder = path
        return translator

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target, as the config says them."""
        return self.config.data.source_language, self.config.data.target_language

    @classmethod
    def ensemble(cls, members: Sequence[Translator]) -> Translator:
        """Several models as one: the next token has the mean of their probabilities.

        They need one vocabulary. Settings, links and the limit of lengths are the first model's, or the strictest's.
        """
        if not members:
            raise ValueError("an ensemble of no models; wanted at least one")
        first, *others = members
        for other in others:
            if other.subwords.sha256 != first.subwords.sha256:
                names = first.folder or "the first model", other.folder or "another"
                raise ValueError(f"the subwords of {names[0]} and {names[1]} differ; an ensemble needs one vocabulary")
            if other.languages != first.languages:
                said = [" to ".join(member.languages) for member in (first, other)]
                raise ValueError(f"the models translate {said[0]} and {said[1]}; an ensemble needs the same languages")
        if not others:
            return first
        shortest = min(member.config.model.max_length for member in members)
        shape = dataclasses.replace(first.config.model, max_length=shortest)
        together = cls(first.model, first.subwords, dataclasses.replace(first.config, model=shape), str(first.device))
        together.folder, together.members = first.folder, tuple(members)
        engines = EnsembleEngines([member.pipeline.engines for member in members])
        together.pipeline = Pipeline(first.model, first.device, engines, shortest)
        return together

    def save(self, path: str | Path) -> None:
        """Write a model folder."""
        if self.members:
            raise ValueError(f"this is an ensemble of {len(self.members)} models; wanted one to save")
        save_folder(path, self.config, unique_weights(self.model), self.subwords.model)

    def translate(self, sentences: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each sentence.

        `options` are fields of DecodeConfig, such as beam=1, and `links`, `prefixes`, `rerank` of `translate_stream`.
        """
        return [best[0].text for best in self.translate_nbest(sentences, **options)]

    def translate_nbest(
        self, sentences: Sequence[str], nbest: int = 1, links: LinkReader | None = None, **options: Any
    ) -> list[list[Translation]]:
        """The `nbest` best translations of each sentence, best first; `options` as in `translate`."""
        refuse_str("sentences", sentences)
        return list(self.translate_stream(sentences, nbest, max(len(sentences), 1), links, **options))

    def translate_stream(
        self,
        lines: Iterable[str],
        nbest: int = 1,
        window: int = WINDOW,
        links: LinkReader | None = None,
        prefixes: Iterable[str] | None = None,
        rerank: Reranker | None = None,
        first: int = 0,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Translations in the order of the lines, which are read `window` at a time.

        With `links=OnlineLinks(translator)` (rela.alignment.online) each has its word links. `prefixes` are what the
        translations must begin with, one a line. `rerank` orders all translations of the beam again before the `nbest`
        are given. `first` is the number of the first line, for warnings and the random numbers of sampling.
        """
        refuse_str("lines", lines)
        if not 1 <= window <= sys.maxsize:
            raise ValueError(f"window is {window}; wanted at least 1, and no more than memory can hold")
        if not 1 <= nbest <= MAX_BEAM:
            raise ValueError(f"nbest is {nbest}; wanted 1 to {MAX_BEAM:,}")
        decode = with_options(self.config.decode, options)
        if decode.sampling:
            decode = dataclasses.replace(decode, beam=nbest)  # as many draws as are asked for, and all of them given
        if nbest > decode.beam:
            raise ValueError(f"nbest is {nbest}; wanted at most the beam, {decode.beam}")
        if prefixes is not None:
            refuse_str("prefixes", prefixes)
            decode = stepwise(decode, "it forces no prefix")
        lock = ClosableLock()  # a large window is encoded in a thread
        reader = Reader(self, lines, prefixes, window, lock, keep_lines=rerank is not None)
        request = Request(
            decode,
            nbest if rerank is None else decode.beam,
            window,
            watch=None if links is None else Watch(links.layer, links.read_batch, links.heads),
            prefix_of=None if prefixes is None else reader.take_prefix,
            first=first,
        )
        found = self.pipeline.translate(reader, partial(self.to_translation, links, reader.texts), request)
        try:
            if rerank is None:
                yield from found
            # a window comes as a whole, so that nothing waits for lines that are still to come
            while rerank is not None and (groups := list(islice(found, window))):
                sources = [reader.lines.popleft() for _ in groups]
                for group in rerank.rerank(sources, groups, decode.length_penalty):
                    yield group[:nbest]
        finally:
            lock.close()

    def encode_source(self, line: str, number: int) -> list[int]:
        """Subword ids of a line, cut with a warning where it is longer than the model's positions reach.

        There is a warning, too, where no character is known: what the model then writes has no source.
        """
        ids = self.subwords.source.encode(line)
        if UNK in ids and not any(map(str.isalnum, self.subwords.source.decode(ids))):
            warnings.warn(f"line {number + 1} has no word in characters that the model knows", stacklevel=2)
        limit = self.config.model.max_length - 1
        if len(ids) > limit:
            warnings.warn(
                f"line {number + 1} has {len(ids)} subwords; only the first {limit} are translated", stacklevel=2
            )
        return ids[:limit]

    def to_translation(
        self, links: LinkReader | None, texts: dict[int, str], number: int, source: list[int], hypothesis: Hypothesis
    ) -> Translation:
        """A hypothesis of line `number` with its text and, if asked for, its links."""
        tokens = hypothesis.tokens
        found = hypothesis.links
        if links is not None and (found is None or number in texts):
            found = links.read(source, tokens, hypothesis.attention, texts.get(number, ""))
        return Translation(self.subwords.decode(tokens), hypothesis.score, hypothesis.log_prob, tokens, found)

    def score(self, sources: Sequence[str], targets: Sequence[str], **options: Any) -> list[Scored]:
        """The log-probability of each target, token by token, given its source; `options` as in `translate`."""
        refuse_str("sources", sources)
        refuse_str("targets", targets)
        decode = with_options(self.config.decode, options)
        if len(sources) != len(targets):
            raise ValueError(f"there are {len(sources)} sources and {len(targets)} targets; wanted equally many")
        pairs = [self.encode_pair(source, target) for source, target in zip(sources, targets, strict=True)]
        log_probs = self.pipeline.score(pairs, decode)
        return [
            Scored(tuple(self.subwords.pieces([*target, EOS])), tuple(values))
            for (_, target), values in zip(pairs, log_probs, strict=True)
        ]

    def encode_pair(self, source: str, target: str) -> IdPair:
        """Subword ids of both sides; a pair too long for the model is an error, since a cut one has another score."""
        pair = self.subwords.source.encode(source), self.subwords.encode(target)
        limit = self.config.model.max_length - 1
        for name, text, ids in zip(("source", "target"), (source, target), pair, strict=True):
            if len(ids) > limit:
                start = " ".join(text.split())[:30]
                raise PairTooLong(f"the {name} {start!r}… has {len(ids)} subwords; the model takes at most {limit}")
        return pair

    def pack_evenly(self, pairs: list[IdPair]) -> Batch:
        """Pairs of ids as one batch on the model's device; see rela.decoding.even_packing."""
        return pack_evenly(pairs, self.device)


class Reader:
    """Reads windows of lines as subword ids, and remembers what else belongs to a line until it is asked for."""

    def __init__(
        self,
        translator: Translator,
        lines: Iterable[str],
        prefixes: Iterable[str] | None,
        window: int,
        lock: ClosableLock,
        keep_lines: bool,
    ) -> None:
        self.translator, self.stream, self.window, self.lock = translator, iter(lines), window, lock
        self.prefix_stream = None if prefixes is None else iter(prefixes)
        self.keep_lines = keep_lines
        self.lines = deque[str]()
        """In order, if they are to be kept."""
        self.prefixes: dict[int, list[int]] = {}
        """Subword ids by the number of the line."""
        self.texts: dict[int, str] = {}
        """Lines with no-break spaces by their number, as long as their window may be at work."""

    def __call__(self, number: int) -> list[list[int]]:
        """Subword ids of the next window of lines, the first of which is line `number`."""
        ids = []
        for old in [old for old in self.texts if old < number - 2 * self.window]:
            del self.texts[old]
        for i, line in enumerate(islice(self.stream, self.window), start=number):
            with self.lock:
                if has_no_break(line):
                    self.texts[i] = line
                ids.append(self.translator.encode_source(line, i))
                if self.keep_lines:
                    self.lines.append(line)
                if self.prefix_stream is not None:
                    self.prefixes[i] = self.read_prefix(i, bool(ids[-1]))
        return ids

    def read_prefix(self, number: int, is_line: bool) -> list[int]:
        """Subword ids of the next prefix, which is of line `number`."""
        assert self.prefix_stream is not None
        prefix = next(self.prefix_stream, None)
        if prefix is None:
            raise ValueError(f"there is no prefix for line {number + 1}; wanted one a line, an empty one where none is")
        ids = self.translator.subwords.encode(prefix)
        limit = self.translator.config.model.max_length - 1
        if len(ids) > limit:
            raise ValueError(
                f"the prefix of line {number + 1} has {len(ids)} subwords; the model takes at most {limit}"
            )
        if UNK in ids:
            raise ValueError(
                f"the prefix of line {number + 1} has a character that the model does not know: {prefix!r}"
            )
        if ids and not is_line:
            raise ValueError(f"line {number + 1} is empty and has the prefix {prefix!r}; wanted none, it stays empty")
        return ids

    def take_prefix(self, number: int) -> list[int]:
        """The prefix of a line, once."""
        return self.prefixes.pop(number)


def stepwise(decode: DecodeConfig, reason: str) -> DecodeConfig:
    """The settings for something the GPU engine does not do: the reference, or an error where graphs are asked for."""
    if decode.engine == "graphs":
        raise ValueError(f'engine is "graphs", which cannot serve here: {reason}')
    return dataclasses.replace(decode, engine="reference")


def refuse_str(name: str, sentences: object) -> None:
    """Raise a TypeError for one str, which would be taken for a sequence of letters."""
    if isinstance(sentences, str):
        raise TypeError(f"{name} is one str; wanted a list of sentences, such as [{name}]")


def with_options(decode: DecodeConfig, options: dict[str, Any]) -> DecodeConfig:
    """The settings with some of them changed, or a TypeError that names an unknown one and those there are."""
    known = [field.name for field in dataclasses.fields(decode)]
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"there is no option {', '.join(unknown)}; there are {', '.join(known)}")
    changed = dataclasses.replace(decode, **options)
    if not changed.sampling and (unused := sorted(options.keys() & SAMPLING_OPTIONS)):
        raise ValueError(f"{', '.join(unused)} without effect: only sampling reads it; wanted sampling=True too")
    return changed
