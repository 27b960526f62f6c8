"""Text to text: a model with its vocabulary, and everything one asks of it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rela.config import Config, DecodeConfig
from rela.data.batching import Batch, StaticShape, pack
from rela.data.subwords import BOS, EOS, PAD, UNK, Subwords
from rela.decoding.beam import Hypothesis, beam_search
from rela.decoding.engines.choose import Engine
from rela.decoding.engines.gpu_search import NOTHING, PLACES, Answers, Chunk, Meanwhile, lay_out
from rela.decoding.engines.int8 import QuantisedState, QuantisedTransformer
from rela.decoding.sampling import sample
from rela.decoding.windows import WINDOW, Group, batches_by_length, groups_of
from rela.device import pick_device
from rela.errors import RunFailed
from rela.model.folder import ModelFolderError, load_folder, save_folder, unique_weights
from rela.model.state import DecoderState
from rela.model.transformer import KEY_MULTIPLE, Transformer, round_up

# Matrix products give a row the same bits whatever the other rows are, if there are enough of them and their
# number is a multiple of the kernel's block; so a translation does not depend on the sentences beside it.
ROW_MULTIPLE = 8
# Source tokens of a batch, unless asked for otherwise: what fills a GPU is more than a CPU has the memory for.
GRAPHS_TOKENS, REFERENCE_TOKENS = 16_384, 4096


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


@dataclass(frozen=True)
class Prepared:
    """Lines that are translated together, ready for search."""

    lines: Group
    sources: list[list[int]]
    """Subwords of those that are not empty."""
    limits: Tensor
    """How many subwords each translation may have, on the host."""
    chunks: list[Chunk] | None
    """The same laid out for search on a GPU; None where the reference serves."""


class Translator:
    """A Transformer and its subwords: translates and scores text.

    model = rela.load("runs/model")
    model.translate(["A dog is sleeping ."])

    One thread at a time: search on a GPU has buffers of its own that are used again.
    """

    def __init__(self, model: Transformer, subwords: Subwords, config: Config, device: str = "auto") -> None:
        if subwords.size != config.model.vocabulary_size:
            raise ModelFolderError(
                f"the subword model has {subwords.size} pieces and the Transformer {config.model.vocabulary_size}; wanted equal"
            )
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.subwords = subwords
        self.config = config
        self.folder: Path | None = None
        self.engine = Engine(self.model)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Translator:
        """Read a model folder (safetensors, YAML, SentencePiece)."""
        model, config, subwords = load_folder(path)
        try:
            translator = cls(model, Subwords(subwords), config, device)
        except ValueError as error:
            raise ModelFolderError(f"{path}: {error}") from None
        translator.folder = Path(path)
        return translator

    def save(self, path: str | Path) -> None:
        """Write a model folder."""
        save_folder(path, self.config, unique_weights(self.model), self.subwords.model)

    def translate(self, sentences: Sequence[str], **options) -> list[str]:
        """The best translation of each sentence; `options` are fields of DecodeConfig, such as beam=1."""
        return [best[0].text for best in self.translate_nbest(sentences, **options)]

    def translate_nbest(self, sentences: Sequence[str], nbest: int = 1, **options) -> list[list[Translation]]:
        """The `nbest` best translations of each sentence, best first."""
        if isinstance(sentences, str):
            raise TypeError("sentences is one str; wanted a list of them")
        return list(self.translate_stream(sentences, nbest, window=max(len(sentences), 1), **options))

    def translate_stream(
        self, lines: Iterable[str], nbest: int = 1, window: int = WINDOW, **options
    ) -> Iterator[list[Translation]]:
        """Translations in the order of the lines, which are read `window` at a time."""
        for name, value in (("nbest", nbest), ("window", window)):
            if value < 1:
                raise ValueError(f"{name} is {value}; wanted at least 1")
        decode = dataclasses.replace(self.config.decode, **options)
        if decode.sampling:
            decode = dataclasses.replace(decode, beam=nbest)  # as many draws as are asked for, and all of them given
        if nbest > decode.beam:
            raise ValueError(f"nbest is {nbest}; wanted at most the beam, {decode.beam}")
        graphs = self.engine.uses_graphs(decode)
        tokens = decode.batch_tokens or (GRAPHS_TOKENS if graphs else REFERENCE_TOKENS)
        groups = groups_of(partial(self.read_window, iter(lines), window), window, tokens, PLACES if graphs else None)
        upcoming = (None if group is None else self.prepare(group, decode, graphs) for group in groups)
        yield from self.translate_groups(upcoming, nbest, decode)

    def read_window(self, stream: Iterator[str], window: int, number: int) -> list[list[int]]:
        """Subword ids of the next lines, the first of which is line `number`."""
        return [self.encode_source(line, number + i) for i, line in enumerate(islice(stream, window))]

    def translate_groups(
        self, upcoming: Iterator[Prepared | None], nbest: int, decode: DecodeConfig
    ) -> Iterator[list[Translation]]:
        """The `nbest` best translations of each line, a window at a time.

        While the device is at one group, the next is prepared and the text of the one before is made. None among the
        groups is a pause: what has been searched is given before the next one is asked for.
        """
        group, before, finishing = next(upcoming, None), None, NOTHING
        while group is not None:
            if group.chunks is None:  # the reference works on the host: nothing is done meanwhile
                yield from self.finished(before, finishing)
                before = None
            following: list[Prepared | None] = []
            meanwhile = chain(take_one(upcoming, following), finishing)
            try:
                found = self.search_later(group, decode, nbest, meanwhile)
                exhaust(meanwhile)
            except Exception:
                yield from self.finished(before, finishing)  # not to be lost with what comes after
                raise
            yield from self.finished(before, finishing)
            before, finishing = group, self.finish_each(group.lines, found)
            if (group := following[0]) is None:
                yield from self.finished(before, finishing)
                group, before, finishing = next(upcoming, None), None, NOTHING

    def finished(self, group: Prepared | None, finishing: Meanwhile) -> Iterator[list[Translation]]:
        """The answers of a window that ends with this group, once what is left to do for it is done."""
        exhaust(finishing)
        if group is not None and group.lines.end_window and None not in group.lines.answers:
            yield from group.lines.answers

    def prepare(self, lines: Group, decode: DecodeConfig, graphs: bool) -> Prepared:
        """All of a search that can be done before the device is free for it; an empty line needs none."""
        sources = [ids for ids in lines.ids if ids]
        limits = self.longest_translations(sources, decode)
        chunks = lay_out(sources, limits.tolist(), decode.beam) if graphs else None
        return Prepared(lines, sources, limits, chunks)

    @torch.inference_mode()
    def search_later(
        self, group: Prepared, decode: DecodeConfig, nbest: int, meanwhile: Meanwhile = NOTHING
    ) -> Answers:
        """The `nbest` best hypotheses of each line as a call that waits for what the device is still at."""
        with self.on_device():
            found = self.begin_search(group, decode, nbest, meanwhile) if group.sources else partial(iter, ())
        return partial(self.with_empty, group, nbest, found)

    def with_empty(self, group: Prepared, nbest: int, found: Answers) -> Iterator[list[Hypothesis]]:
        """Hypotheses of all lines; an empty one has an empty translation."""
        searched = found()
        for ids in group.lines.ids:
            hypotheses = next(searched) if ids else [Hypothesis((), 0.0, 0.0)]
            if not hypotheses:
                raise RunFailed("the model gives no translation a probability; are its weights numbers?")
            yield hypotheses[:nbest]

    def begin_search(self, group: Prepared, decode: DecodeConfig, nbest: int, meanwhile: Meanwhile) -> Answers:
        """Hypotheses of the sources that are not empty, best first."""
        device_search = self.engine.search_for(decode)
        if device_search is not None and group.chunks is not None:
            return device_search.search_later(group.chunks, nbest, meanwhile)
        with self.engine.reference_precision(decode):
            numbers = [number for number, ids in zip(group.lines.numbers, group.lines.ids, strict=True) if ids]
            found = self.reference_search(group.sources, group.limits, decode, numbers)
        return lambda: iter(found)

    def reference_search(
        self, sources: list[list[int]], limits: Tensor, decode: DecodeConfig, numbers: list[int]
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each source by the model as it is written, step by step."""
        model = self.engine.reference(decode)
        # Sums of integers are exact in any order, and what int8 does in float32 it does row by row.
        row_multiple = ROW_MULTIPLE if model is self.model else 1
        company = -len(sources) % (math.lcm(row_multiple, decode.beam) // decode.beam)
        together = sources + [sources[-1]] * company
        state = self.start(model, together)
        max_lengths = torch.cat([limits, limits[-1:].expand(company)]).to(self.device)
        if decode.sampling:
            seeds = [(decode.seed * 1_000_003 + number) % 2**63 for number in [*numbers, *[numbers[-1]] * company]]
            found = sample(
                model.decode_step, state, max_lengths, samples=decode.beam, bos=BOS, eos=EOS, seeds=seeds,
                temperature=decode.temperature, banned=(PAD, BOS, UNK),
            )  # fmt: skip
        else:
            found = beam_search(
                model.decode_step, state, max_lengths, beam=decode.beam, bos=BOS, eos=EOS,
                alpha=decode.length_penalty, banned=(PAD, BOS, UNK), reorder=reorder, row_multiple=row_multiple,
            )  # fmt: skip
        return found[: len(sources)]

    def start(
        self, model: Transformer | QuantisedTransformer, sources: list[list[int]]
    ) -> DecoderState | QuantisedState:
        """Encode the sources; the decoder's state before its first step."""
        batch = self.pack_evenly([(ids, []) for ids in sources])
        packing = batch.source_packing.map(lambda cu: cu[: len(sources) + 1])
        return model.start(model.encode(batch.source, batch.source_positions, packing), packing)

    def longest_translations(self, sources: list[list[int]], decode: DecodeConfig) -> Tensor:
        """How many subwords each source's translation may have, [B], on the host."""
        lengths = torch.tensor([len(ids) for ids in sources])
        limits = (lengths * decode.max_length_ratio + decode.max_length_extra).long()
        return limits.clamp(1, self.config.model.max_length - 1)

    def encode_source(self, line: str, number: int) -> list[int]:
        """Subword ids of a line, cut with a warning where it is longer than the model's positions reach."""
        ids = self.subwords.encode(line)
        limit = self.config.model.max_length - 1
        if len(ids) > limit:
            warnings.warn(
                f"line {number + 1} has {len(ids)} subwords; only the first {limit} are translated", stacklevel=2
            )
        return ids[:limit]

    def finish_each(self, lines: Group, found: Answers) -> Meanwhile:
        """Put the translations of a group where they belong, a line at each `next`."""
        for place, hypotheses in zip(lines.places, found(), strict=True):
            lines.answers[place] = [self.finish(hypothesis) for hypothesis in hypotheses]
            yield None

    def finish(self, hypothesis: Hypothesis) -> Translation:
        text = self.subwords.decode(hypothesis.tokens)
        return Translation(text, hypothesis.score, hypothesis.log_prob, hypothesis.tokens)

    def score(self, sources: Sequence[str], targets: Sequence[str], **options) -> list[Scored]:
        """The log-probability of each target, token by token, given its source; `options` as in `translate`."""
        decode = dataclasses.replace(self.config.decode, **options)
        if len(sources) != len(targets):
            raise ValueError(f"there are {len(sources)} sources and {len(targets)} targets; wanted equally many")
        pairs = [self.encode_pair(source, target) for source, target in zip(sources, targets, strict=True)]
        answers: list[Scored | None] = [None] * len(pairs)
        longest = [max(len(source), len(target)) for source, target in pairs]
        for batch in batches_by_length(longest, decode.batch_tokens or REFERENCE_TOKENS):
            with self.engine.reference_precision(decode):
                log_probs = self.forced_log_probs([pairs[i] for i in batch], self.engine.reference(decode))
            for i, values in zip(batch, log_probs, strict=True):
                answers[i] = Scored(tuple(self.subwords.pieces([*pairs[i][1], EOS])), tuple(values))
        return [answer for answer in answers if answer is not None]

    def encode_pair(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """Subword ids of both sides; a pair too long for the model is an error, since a cut one has another score."""
        pair = self.subwords.encode(source), self.subwords.encode(target)
        limit = self.config.model.max_length - 1
        for name, text, ids in zip(("source", "target"), (source, target), pair, strict=True):
            if len(ids) > limit:
                start = " ".join(text.split())[:30]
                raise PairTooLong(f"the {name} {start!r}… has {len(ids)} subwords; the model takes at most {limit}")
        return pair

    @torch.inference_mode()
    def forced_log_probs(
        self, pairs: list[tuple[list[int], list[int]]], model: Transformer | QuantisedTransformer | None = None
    ) -> list[list[float]]:
        """Log-probabilities of each target's subwords and </s>."""
        model = self.model if model is None else model
        batch = self.pack_evenly(pairs)
        with self.on_device():
            hidden = model(*batch.inputs)
            log_probs = torch.log_softmax(model.logits(hidden).float(), -1)
        chosen = log_probs.gather(-1, batch.target_out[:, None])[:, 0].cpu()
        bounds = batch.target_packing.cu_seqlens.tolist()
        return [chosen[bounds[i] : bounds[i + 1]].tolist() for i in range(len(pairs))]

    def on_device(self) -> contextlib.AbstractContextManager:
        """Kernels and events go to the current GPU, so that is to be the model's."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def pack_evenly(self, pairs: list[tuple[list[int], list[int]]]) -> Batch:
        """Pack pairs so that no pair's result depends on the others: see ROW_MULTIPLE and KEY_MULTIPLE."""
        lengths = [[len(ids) + 1 for ids in side] for side in zip(*pairs, strict=True)]
        source, target = (round_up(sum(side), ROW_MULTIPLE) for side in lengths)
        longest_source, longest_target = (round_up(max(side), KEY_MULTIPLE) for side in lengths)
        shape = StaticShape(source, target, len(pairs), longest_source, longest_target)
        return pack(pairs, shape).to(self.device)


def reorder(state: Any, rows: Tensor, sentences: Tensor | None) -> Any:
    state.reorder(rows, sentences)
    return state


def take_one(items: Iterator[Any], into: list[Any]) -> Meanwhile:
    """The next item, or None, as one piece of work."""
    into.append(next(items, None))
    yield None


def exhaust(pieces: Meanwhile) -> None:
    """Do what is left."""
    for _ in pieces:
        pass
