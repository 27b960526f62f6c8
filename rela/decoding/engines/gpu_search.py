"""Beam search that stays on the device: the host launches one graph a step and reads, later, which sentences are done.

`rela.decoding.beam.Search` is the specification. The sentences of a batch keep their index in static buffers. A step
computes the active ones; when enough of them are done, the others go on in a smaller step.

`encode`, `start`, `step` and `reorder` are those of `rela.decoding.engines.engine`, over static buffers. Nothing comes
back to the host between them, so the loop over them is here, in `launch_batch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from torch import Tensor

from rela.data.subwords import BOS, EOS, PAD, UNK
from rela.decoding.background import NO_WORK, HostWork
from rela.decoding.beam import Hypothesis, length_penalty
from rela.decoding.engines.gpu_batches import GpuBatch, smallest_size, split_batch
from rela.decoding.engines.gpu_buffers import Buffers, DoneFlags, Sizes, copy_to_host, upload
from rela.decoding.engines.gpu_network import GpuNetwork
from rela.decoding.word_links import WordLinks, links_of

ReadLinks = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Of source ids [N, S] and target ids [N, T], without </s> and with PAD behind, and weights [N, H, T + 1, S + 1]: the
best source word of each target word [N, T], or -1, and for which pairs that holds [N]."""
PendingResults = Callable[[], Iterator[list[Hypothesis]]]
"""Waits for a search that has been launched, and gives the hypotheses of each source, made one source at a time."""


@dataclass(frozen=True)
class Watch:
    """A decoder layer whose cross attention is kept in every step, and what is made of it at the end."""

    layer: int
    read: ReadLinks
    heads: tuple[int, ...] | None = None
    """Those whose weights are read, in this order; None for all."""


# How many sentences a step may have, padding included: there is a graph for each.
STEP_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# After so many steps the host asks which sentences are done; it reads the flags when the steps after them are queued.
STEPS_PER_CHECK = 2
# Encoders of up to so many tokens are graphs; larger ones keep the device busy without.
ENCODER_GRAPH_TOKENS = 1 << 14
# Weights of a watched layer that are computed at once.
WATCHED_WEIGHTS = 1 << 26


class GpuEngine:
    """Beam search with one network, beam width and length penalty; buffers grow to the largest batch seen."""

    def __init__(self, network: GpuNetwork, beam: int, alpha: float) -> None:
        self.network, self.beam, self.device = network, beam, network.device
        self.candidates = 2 * beam if beam > 1 else 1
        longest = network.config.max_length + 2
        penalties = [1.0, *(length_penalty(n, alpha) for n in range(1, longest))]
        self.penalties = torch.tensor(penalties, dtype=torch.float32, device=self.device)
        self.banned = torch.tensor([PAD, BOS, UNK], dtype=torch.int32, device=self.device)
        self.buffers: Buffers | None = None

    def search(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[Hypothesis]]:
        """Hypotheses of each source, best first; limits are the `max_lengths` of `beam_search`."""
        return list(self.launch(split_batch(sources, limits, self.beam))())

    def launch(
        self,
        batches: Iterable[GpuBatch],
        nbest: int | None = None,
        work: HostWork = NO_WORK,
        watch: Watch | None = None,
    ) -> PendingResults:
        """`search` whose last steps may still be running; calling what it returns waits for them.

        The next search may be launched before: the device copies the results out first. `nbest` hypotheses of each
        source are made, or all. Where the host would wait for the device, it does pieces of `work`. With `watch`, the
        word links of each hypothesis come with it, from the weights of the steps that gave its tokens.
        """
        nbest = self.beam if nbest is None else min(nbest, self.beam)
        pending = [self.launch_batch(batch, nbest, work, watch) for batch in batches]
        return lambda: chain.from_iterable(results() for results in pending)

    def launch_batch(self, batch: GpuBatch, nbest: int, work: HostWork, watch: Watch | None) -> PendingResults:
        """Search for translations of a batch; the results are on their way from the device."""
        buffers = self.encode(batch)
        layer = None if watch is None else watch.layer
        if watch is not None:
            buffers.keep_queries()
        self.start(len(batch.limits))
        active = list(range(len(batch.limits)))
        size = smallest_size(len(active), STEP_SIZES)
        requested = deque[DoneFlags]()
        steps = max(batch.limits) + 1
        launched = 0
        while launched < steps:
            if (needed := smallest_size(len(active), STEP_SIZES)) != size:
                size = needed
                self.reorder(active)
            for _ in range(min(steps - launched, STEPS_PER_CHECK)):
                self.step(size, layer)
                launched += 1
            requested.append(buffers.request_done_flags())
            if len(requested) > 1:
                done = requested.popleft().read(work)
                active = [sentence for sentence in active if not done[sentence]]
                if not active:
                    break
        return self.collect(len(batch.limits), launched - 1, nbest, watch)

    def encode(self, batch: GpuBatch) -> Buffers:
        """The buffers, with the batch and the cross keys and values of its sources in them."""
        buffers = self.buffers_for(batch)
        buffers.load(batch, capacity_for(batch))
        tokens, blocks = batch.sources.padded_tokens, batch.sources.padded_blocks

        def compute() -> None:
            self.network.encode(
                buffers.ids[:tokens], buffers.positions[:tokens], buffers.blocks, blocks, buffers.memory[:tokens]
            )

        if tokens <= ENCODER_GRAPH_TOKENS:
            buffers.graphs(("encode", tokens, blocks), compute)
        else:
            compute()
        return buffers

    def buffers_for(self, batch: GpuBatch) -> Buffers:
        """The static buffers, made anew where the batch does not fit into them."""
        entries = len(batch.limits) * capacity_for(batch) * self.beam
        needed = Sizes(batch.sources.padded_tokens, entries)
        if self.buffers is None or not self.buffers.sizes.holds(needed):
            old = Sizes(0, 0) if self.buffers is None else self.buffers.sizes
            self.buffers = None  # its memory is free before the new ones are made
            self.buffers = Buffers(self.network, self.beam, old.grown_to(needed))
        return self.buffers

    def start(self, sentences: int) -> None:
        """Give each of the first sentences one empty hypothesis."""
        from rela.kernels.search import beam_step

        beam_step.begin(self.loaded.state, sentences, BOS)

    def step(self, size: int, watched: int | None = None) -> None:
        """One more token of the first `size` active sentences, as a graph."""
        self.loaded.graphs(("step", size, watched), lambda: self.compute_step(size, watched))

    def reorder(self, sentences: list[int]) -> None:
        """Go on with these sentences alone; their beams have already been reordered by the step itself."""
        self.loaded.set_active(sentences)

    @property
    def loaded(self) -> Buffers:
        """The buffers that hold the batch being searched."""
        assert self.buffers is not None
        return self.buffers

    def compute_step(self, size: int, watched: int | None) -> None:
        """The network, the candidates of each row, and the search."""
        from rela.kernels.search import beam_step

        buffers, rows = self.loaded, size * self.beam
        in_chain = rows <= self.network.chain_rows
        hidden = self.network.step(buffers, size, in_chain, watched)
        log_probs, tokens = self.best_tokens(hidden, in_chain)
        beam_step.advance(
            buffers.state,
            log_probs,
            tokens,
            buffers.active,
            buffers.limits,
            buffers.capacity,
            self.penalties,
            sentences=size,
            vocabulary=self.network.output.size(0),
            eos=EOS,
            in_chain=in_chain,
        )

    def best_tokens(self, hidden: Tensor, in_chain: bool) -> tuple[Tensor, Tensor]:
        """The log-probabilities and the ids [R, candidates] of the best next tokens, from hidden states [R, C]."""
        from rela.kernels.search import top_candidates

        buffers, rows, vocabulary = self.loaded, hidden.size(0), self.network.output.size(0)
        logits = torch.empty(rows, vocabulary, device=self.device)
        tiles = torch.empty(3, rows, top_candidates.tiles_of(vocabulary), device=self.device)
        top_candidates.tile_logits(hidden, self.network.output, self.banned, logits, tiles, in_chain=in_chain)
        log_probs = torch.empty(rows, self.candidates, device=self.device)
        tokens = torch.empty(rows, self.candidates, dtype=torch.int32, device=self.device)
        top_candidates.best_tokens(
            logits,
            tiles,
            buffers.active,
            buffers.state.lengths,
            buffers.limits,
            self.banned,
            log_probs,
            tokens,
            beam=self.beam,
            eos=EOS,
            in_chain=in_chain,
        )
        return log_probs, tokens

    def collect(self, sentences: int, longest: int, nbest: int, watch: Watch | None) -> PendingResults:
        """The best finished hypotheses of the first sentences, each of up to `longest` tokens, as pending results."""
        from rela.kernels.search import beam_step

        buffers = self.loaded
        found = torch.empty(sentences, nbest, 3 + longest, dtype=torch.int32, device=self.device)
        entries = None if watch is None else buffers.zeros(torch.int32, sentences, nbest, longest + 1)
        beam_step.read_back(buffers.state, buffers.capacity, found, entries)
        if watch is not None and entries is not None:
            found = torch.cat([found, self.best_sources(found, entries, watch)], dim=-1)
        copy, arrived = copy_to_host(found)
        width = 3 + longest

        def results() -> Iterator[list[Hypothesis]]:
            if arrived is not None:
                arrived.synchronize()
            links = repeat(None) if watch is None else iter(many_links(copy[..., width:]))  # one for each row
            for rows in copy[..., :width].numpy():
                scores = rows[:, :2].copy().view(np.float32).tolist()
                yield [
                    Hypothesis(tuple(row[3 : 3 + row[2]]), log_prob, score, links=read)
                    for row, (score, log_prob), read in zip(rows.tolist(), scores, links, strict=False)
                    if score > float("-inf")
                ]

        return results

    def best_sources(self, found: Tensor, entries: Tensor, watch: Watch) -> Tensor:
        """int32 [B, nbest, 1 + longest]: whether links were read, then each target word's source word or -1.

        Of the rows that `read_back` found, and the entries of their queries.
        """
        buffers = self.loaded
        sources = buffers.sources
        spans = torch.empty(2, len(sources.lengths), 1, dtype=torch.int32, device=self.device)
        upload(np.stack([sources.starts, sources.lengths])[..., None], spans)
        starts, lengths = spans
        offsets = torch.arange(int(sources.lengths.max()), dtype=torch.int32, device=self.device)
        keys, inside = starts + torch.minimum(offsets, lengths - 1), offsets < lengths
        source = buffers.ids[keys].masked_fill(offsets >= lengths - 1, PAD)[:, :-1]
        target = found[..., 3:]
        target = target.masked_fill(torch.arange(target.size(-1), device=self.device) >= found[..., 2:3], PAD)
        nbest, parts = entries.size(1), []
        heads = self.network.heads if watch.heads is None else len(watch.heads)
        step = max(1, WATCHED_WEIGHTS // (heads * entries[0].numel() * len(offsets)))
        for part in (slice(i, i + step) for i in range(0, len(entries), step)):
            queries = entries[part].flatten(1)
            given = queries, keys[part], inside[part], watch.heads
            weights = self.network.watched_weights(buffers, watch.layer, *given)
            weights = weights.unflatten(2, (nbest, -1)).transpose(1, 2).flatten(0, 1)
            repeated = source[part] if nbest == 1 else source[part].repeat_interleave(nbest, 0)
            best, is_read = watch.read(repeated, target[part].flatten(0, 1), weights)
            parts.append(torch.cat([is_read[:, None].int(), best.int()], 1))
        return torch.cat(parts).unflatten(0, (-1, nbest))


def many_links(found: Tensor) -> list[WordLinks | None]:
    """The links of each hypothesis of int32 [B, nbest, 1 + longest], which `best_sources` gives, on the host."""
    # a copy, since links are kept, and would keep the pinned memory
    rows = found.flatten(0, 1).clone().numpy()
    return [links_of(is_read, best) for is_read, best in zip(rows[:, 0].tolist(), rows[:, 1:], strict=True)]


def capacity_for(batch: GpuBatch) -> int:
    """Positions of the cache that each sentence of a batch needs."""
    return max(batch.limits) + 1
