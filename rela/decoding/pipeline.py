"""Ids in, hypotheses out: windows of lines, batches, search, and host work that is done while the device computes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from rela.config import DecodeConfig
from rela.data.subwords import BOS, EOS, PAD, UNK
from rela.decoding.background import HostWork, finish
from rela.decoding.beam import Hypothesis, SpecialTokens, beam_search
from rela.decoding.constraints import Constraints
from rela.decoding.engines.choose import Engines
from rela.decoding.engines.engine import Engine
from rela.decoding.engines.ensemble import EnsembleEngines
from rela.decoding.engines.gpu_batches import MAX_SENTENCES, GpuBatch, split_batch
from rela.decoding.engines.gpu_search import PendingResults, Watch
from rela.decoding.even_packing import IdPair
from rela.decoding.forced import forced_attention
from rela.decoding.length_limits import longest_translation
from rela.decoding.sampling import Draw, sample
from rela.decoding.traced import TracedEngine
from rela.decoding.windows import WINDOW, LineBatch, batches_by_length, line_batches
from rela.decoding.word_links import WordLinks, links_of
from rela.errors import RunFailed, check_log_probs
from rela.model.transformer import Transformer

# Source tokens of a batch, unless asked for otherwise: what fills a GPU is more than a CPU has the memory for.
GRAPHS_TOKENS, REFERENCE_TOKENS = 16_384, 4096
# Hypotheses of a batch: a large beam must not need more memory than a small one.
REFERENCE_ROWS = 4096
SPECIAL = SpecialTokens(BOS, EOS, banned=(PAD, BOS, UNK))

Read = Callable[[int], list[list[int]]]
"""The ids of the next window of lines, the first of which has this number; none at the end."""
Finish = Callable[[int, list[int], Hypothesis], Any]
"""What is made of each hypothesis of a line with this number and these ids, such as its text."""


@dataclass(frozen=True)
class Request:
    """What is asked of a stream: how to search, how many hypotheses a line, and how many lines are read together."""

    decode: DecodeConfig
    nbest: int = 1
    window: int = WINDOW
    watch: Watch | None = None
    """Where word links are read. Each hypothesis has them, or on a CPU the weights of that layer instead."""
    prefix_of: Callable[[int], list[int]] | None = None
    """The ids that the translation of a line begins with, by the line's number."""
    first: int = 0
    """The number of the first line."""


@dataclass(frozen=True)
class PreparedBatch:
    """Lines that are translated together, ready for search."""

    lines: LineBatch
    sources: list[list[int]]
    """The ids of those that are not empty."""
    limits: Tensor
    """[B]: how many ids each translation may have, on the host."""
    prefixes: list[list[int]] | None
    """What each translation must begin with."""
    gpu_batches: list[GpuBatch] | None
    """The same as the GPU engine takes it; None where another engine serves."""


@dataclass(frozen=True)
class PendingBatch:
    """A batch whose search has been launched; `work` makes its results, those of one line at each `next`."""

    lines: LineBatch
    work: HostWork


class Pipeline:
    """Searches and scores with one model, or the engines of several; it knows ids, and no text."""

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        engines: EnsembleEngines | None = None,
        max_length: int | None = None,
    ) -> None:
        self.model, self.device = model, device
        self.engines: Any = Engines(model) if engines is None else engines
        self.max_length = model.config.max_length if max_length is None else max_length

    def translate(self, read: Read, finish_hypothesis: Finish, request: Request) -> Iterator[list[Any]]:
        """What `finish_hypothesis` makes of the best hypotheses of each line, in the order of the lines.

        While the device searches a batch, the host prepares the next one and makes the results of the one before.
        """
        batches = self.prepared_batches(read, request)
        batch, pending = next(batches, None), None
        while batch is not None:
            if batch.gpu_batches is None:  # the host itself searches, and can do nothing else
                yield from results_of(pending)
                pending = None
            following: list[PreparedBatch | None] = []
            work = chain(take_one(batches, following), pending.work if pending else ())
            try:
                found = self.launch(batch, request, work)
                finish(work)
            except Exception:
                yield from results_of(pending)  # not to be lost with what comes after
                raise
            yield from results_of(pending)
            pending = PendingBatch(batch.lines, make_results(batch.lines, found, finish_hypothesis))
            if (batch := following[0]) is None:  # the next lines may be long in coming: give what there is first
                yield from results_of(pending)
                batch, pending = next(batches, None), None

    def prepared_batches(self, read: Read, request: Request) -> Iterator[PreparedBatch | None]:
        """Batches ready for search; None where the results so far should be given before the next is asked for."""
        graphs = self.engines.uses_graphs(request.decode)
        tokens = request.decode.batch_tokens or (GRAPHS_TOKENS if graphs else REFERENCE_TOKENS)
        most = MAX_SENTENCES if graphs else max(REFERENCE_ROWS // request.decode.beam, 1)
        for lines in line_batches(read, request.window, tokens, most, request.first):
            yield None if lines is None else self.prepare(lines, request, graphs)

    def prepare(self, lines: LineBatch, request: Request, graphs: bool) -> PreparedBatch:
        """All of a search that can be done before the device is free for it; an empty line needs none."""
        sources = [ids for ids in lines.ids if ids]
        limits, prefixes = self.length_limits(sources, request.decode), None
        if request.prefix_of is not None:
            prefixes = [request.prefix_of(number) for number, ids in zip(lines.numbers, lines.ids, strict=True) if ids]
            limits = torch.maximum(limits, torch.tensor([len(prefix) for prefix in prefixes], dtype=torch.long))
        gpu_batches = split_batch(sources, limits.tolist(), request.decode.beam) if graphs else None
        return PreparedBatch(lines, sources, limits, prefixes, gpu_batches)

    def length_limits(self, sources: list[list[int]], decode: DecodeConfig) -> Tensor:
        """How many ids each source's translation may have, [B], on the host."""
        longest = self.max_length - 1
        if decode.min_length > longest:
            raise ValueError(f"min_length is {decode.min_length}; the model's longest translation has {longest}")
        given = decode.max_length_ratio, decode.max_length_extra, decode.min_length, longest
        return torch.tensor([longest_translation(len(ids), *given) for ids in sources], dtype=torch.long)

    @torch.inference_mode()
    def launch(self, batch: PreparedBatch, request: Request, work: HostWork) -> PendingResults:
        """The best hypotheses of each line as a call that waits for what the device still computes.

        Where the host would wait for the device before that, it does pieces of `work`.
        """
        found: PendingResults = partial(iter, ())
        with self.on_device():
            if batch.sources:
                found = self.launch_search(batch, request, work)
        return partial(with_empty_lines, batch.lines, found, request.nbest)

    def launch_search(self, batch: PreparedBatch, request: Request, work: HostWork) -> PendingResults:
        """Hypotheses of the sources that are not empty, best first."""
        gpu_engine = self.engines.gpu_engine(request.decode)
        if gpu_engine is not None and batch.gpu_batches is not None:
            return gpu_engine.launch(batch.gpu_batches, request.nbest, work, request.watch)
        with self.engines.autocast(request.decode):
            return partial(iter, self.search_stepwise(batch, request))

    def search_stepwise(self, batch: PreparedBatch, request: Request) -> list[list[Hypothesis]]:
        """The same from an engine that is driven step by step."""
        engine = self.engines.stepwise_engine(request.decode)
        if request.watch is None:
            return self.search_by(engine, batch, request.decode)
        if self.device.type != "cpu":
            found = self.search_by(engine, batch, request.decode)
            return self.with_links(batch.sources, [best[: request.nbest] for best in found], request.watch)
        traced = TracedEngine(engine, request.watch.layer)
        found = self.search_by(traced, batch, request.decode)
        return [
            [traced.with_attention(sentence, hypothesis) for hypothesis in hypotheses[: request.nbest]]
            for sentence, hypotheses in enumerate(found)
        ]

    def with_links(
        self, sources: list[list[int]], found: list[list[Hypothesis]], watch: Watch
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source with their word links, from one more pass over all of them."""
        pairs = [(ids, list(one.tokens)) for ids, group in zip(sources, found, strict=True) for one in group]
        links: list[WordLinks | None] = [None] * len(pairs)
        for batch, weights in forced_attention(self.model, self.device, pairs, watch.layer):
            source, target = (padded([pairs[i][side] for i in batch], self.device) for side in (0, 1))
            weights = weights[:, :, : target.size(1) + 1, : source.size(1) + 1]
            if watch.heads is not None:
                weights = torch.stack([weights[:, head] for head in watch.heads], 1)
            best, is_read = watch.read(source, target, weights)
            for i, row, flag in zip(batch, best.tolist(), is_read.tolist(), strict=True):
                links[i] = links_of(flag, row)
        rest = iter(links)
        return [[dataclasses.replace(one, links=next(rest)) for one in group] for group in found]

    def search_by(self, engine: Engine, batch: PreparedBatch, decode: DecodeConfig) -> list[list[Hypothesis]]:
        """The hypotheses that beam search, or sampling, finds with an engine."""
        limits, constraints = batch.limits.to(self.device), self.constraints(batch, decode)
        if not decode.sampling:
            return beam_search(
                engine,
                batch.sources,
                limits,
                beam=decode.beam,
                special=SPECIAL,
                alpha=decode.length_penalty,
                constraints=constraints,
            )
        numbers = [number for number, ids in zip(batch.lines.numbers, batch.lines.ids, strict=True) if ids]
        seeds = [(decode.seed * 1_000_003 + number) % 2**63 for number in numbers]
        return sample(
            engine,
            batch.sources,
            limits,
            samples=decode.beam,
            special=SPECIAL,
            seeds=seeds,
            draw=Draw(decode.temperature, decode.top_k, decode.top_p),
            constraints=constraints,
        )

    def constraints(self, batch: PreparedBatch, decode: DecodeConfig) -> Constraints | None:
        """What the translations of a batch are held to, or None; padding sentences are like the last one."""
        found = Constraints(batch.prefixes, decode.min_length, decode.no_repeat_ngram)
        return None if found.are_none else found

    @torch.inference_mode()
    def score(self, pairs: list[IdPair], decode: DecodeConfig) -> list[list[float]]:
        """Log-probabilities of each target's ids and </s>, given its source."""
        scores: list[list[float]] = [[] for _ in pairs]
        longest = [max(len(source), len(target)) for source, target in pairs]
        for batch in batches_by_length(longest, decode.batch_tokens or REFERENCE_TOKENS):
            with self.on_device(), self.engines.autocast(decode):
                log_probs = self.engines.stepwise_engine(decode).score([pairs[i] for i in batch])
            for i, values in zip(batch, log_probs, strict=True):
                check_log_probs(values)
                scores[i] = values
        return scores

    def on_device(self) -> contextlib.AbstractContextManager:
        """Kernels and events go to the current GPU, so that is to be the model's."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()


def padded(sentences: list[list[int]], device: torch.device) -> Tensor:
    """Ids [B, longest] with PAD behind."""
    rows = [torch.tensor(ids, dtype=torch.long) for ids in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)


def take_one(items: Iterator[Any], into: list[Any]) -> HostWork:
    """The next item, or None, as one piece of work."""
    into.append(next(items, None))
    yield None


def with_empty_lines(lines: LineBatch, found: PendingResults, nbest: int) -> Iterator[list[Hypothesis]]:
    """Hypotheses of all lines; an empty one has an empty translation."""
    searched = found()
    for ids in lines.ids:
        hypotheses = next(searched) if ids else [Hypothesis((), 0.0, 0.0)]
        if not all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
            raise RunFailed("a translation has a score that is no number; are the model's weights too large?")
        if not hypotheses:
            raise RunFailed("the model gives no translation a probability; are the model's weights too large?")
        yield hypotheses[:nbest]


def make_results(lines: LineBatch, found: PendingResults, finish_hypothesis: Finish) -> HostWork:
    """Write the results of a batch to its window, those of one line at each `next`."""
    for index, number, ids, hypotheses in zip(lines.indices, lines.numbers, lines.ids, found(), strict=True):
        lines.results[index] = [finish_hypothesis(number, ids, hypothesis) for hypothesis in hypotheses]
        yield None


def results_of(pending: PendingBatch | None) -> Iterator[list[Any]]:
    """The results of a window that ends with this batch, after what is left to do for it."""
    if pending is not None:
        finish(pending.work)
        if pending.lines.is_last and None not in pending.lines.results:
            yield from pending.lines.results
