"""The static tensors of the GPU engine, and how data gets in and out of them without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.decoding.background import HostWork, work_until
from rela.decoding.engines.cuda_graphs import Graphs
from rela.decoding.engines.gpu_batches import MAX_SENTENCES, GpuBatch, PackedSources, smallest_size
from rela.decoding.engines.gpu_network import ENCODER_QUERIES, GpuNetwork

if TYPE_CHECKING:
    from rela.kernels.search.beam_step import Hypotheses
    from rela.kernels.search.step_attention import BeamCache, KeptQueries

# CUDA copies this many bytes of pageable memory at once; with more, it waits for the device.
PAGEABLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Sizes:
    """What the static buffers hold: packed source tokens, and entries of the cache."""

    tokens: int
    cache_entries: int

    def holds(self, other: Sizes) -> bool:
        return self.tokens >= other.tokens and self.cache_entries >= other.cache_entries

    def grown_to(self, needed: Sizes) -> Sizes:
        """Sizes that hold what is needed and, where they grow, some more, so that they seldom grow."""
        return Sizes(grown(self.tokens, needed.tokens), grown(self.cache_entries, needed.cache_entries))


def grown(old: int, needed: int) -> int:
    return old if old >= needed else smallest_size(needed)


class Buffers:
    """Static tensors of one size, and the graphs that were captured over them.

    A step computes the first A entries of `active`: the sentence of each, or -1 for padding. Sentences that are done
    leave the step by a new `active`; nothing else moves.
    """

    def __init__(self, network: GpuNetwork, beam: int, sizes: Sizes) -> None:
        self.sizes, self.beam, self.device = sizes, beam, network.device
        self.graphs = Graphs(self.device)
        width, layers = network.config.width, network.config.decoder_layers
        cache_shape, memory_shape = (layers, 2, sizes.cache_entries, width), (sizes.tokens, layers * 2 * width)
        self.cache = torch.empty(cache_shape, dtype=network.dtype, device=self.device)
        self.memory = torch.empty(memory_shape, dtype=network.dtype, device=self.device)
        self.state = self.new_state()
        self.queries: Tensor | None = None
        # All that a batch brings, in one tensor and so in one copy.
        most_blocks = sizes.tokens // ENCODER_QUERIES + MAX_SENTENCES + 1
        lengths = [sizes.tokens, sizes.tokens, 4 * smallest_size(most_blocks), MAX_SENTENCES, 5 * MAX_SENTENCES, 1]
        self.inputs, self.starts = self.zeros(torch.int32, sum(lengths)), np.cumsum([0, *lengths[:-1]])
        self.ids, self.positions, blocks, self.limits, self.step_inputs, self.capacity = self.inputs.split(lengths)
        self.blocks = blocks.view(-1, 4)
        self.active = self.step_inputs[:MAX_SENTENCES]
        self.active_blocks = self.step_inputs[MAX_SENTENCES:].view(MAX_SENTENCES, 4)
        self.done_flags = [DoneFlags.on(self.device) for _ in range(3)]

    def new_state(self) -> Hypotheses:
        """Empty tables for the hypotheses of MAX_SENTENCES sentences."""
        from rela.kernels.search.beam_step import Hypotheses

        sentences, beams, entries = (MAX_SENTENCES,), (MAX_SENTENCES, self.beam), (self.sizes.cache_entries,)
        return Hypotheses(
            alive=self.zeros(torch.float32, *beams),
            finished=self.zeros(torch.float32, *beams),
            finished_log_probs=self.zeros(torch.float32, *beams),
            finished_lengths=self.zeros(torch.int32, *beams),
            finished_beams=self.zeros(torch.int32, *beams),
            last_tokens=self.zeros(torch.int32, *beams),
            lengths=self.zeros(torch.int32, *sentences),
            done=self.zeros(torch.int32, *sentences),
            beam_bits=self.zeros(torch.int32, *entries),
            tokens=self.zeros(torch.int32, *entries),
            parents=self.zeros(torch.int8, *entries),
        )

    def layer_cache(self, layer: int) -> BeamCache:
        """The keys and values of one layer, and which beams each entry belongs to."""
        from rela.kernels.search.step_attention import BeamCache

        return BeamCache(
            self.cache[layer, 0],
            self.cache[layer, 1],
            self.state.beam_bits,
            self.active,
            self.state.lengths,
            self.state.done,
            self.capacity,
            self.beam,
        )

    def keep_queries(self) -> None:
        """Make room for the queries of a watched layer, before a graph that writes them is captured."""
        if self.queries is None:
            self.queries = torch.zeros_like(self.cache[0, 0])

    @property
    def kept_queries(self) -> KeptQueries:
        """The queries of a watched layer's cross attention, by entry of the cache."""
        from rela.kernels.search.step_attention import KeptQueries

        assert self.queries is not None
        return KeptQueries(self.queries, self.active, self.state.lengths, self.state.done, self.capacity)

    def zeros(self, dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=self.device)

    def load(self, batch: GpuBatch, capacity: int) -> None:
        """Copy a batch to the device, every sentence of it active, with `capacity` positions of the cache for each."""
        self.sources: PackedSources = batch.sources
        parts = [
            batch.sources.ids,
            batch.sources.positions,
            batch.sources.blocks.ravel(),
            np.array(batch.limits),
            self.step_inputs_of(range(len(batch.limits))),
            np.array([capacity]),
        ]
        inputs = np.zeros(self.inputs.numel(), dtype=np.int32)
        for start, part in zip(self.starts, parts, strict=True):
            inputs[start : start + len(part)] = part
        upload(inputs, self.inputs)

    def set_active(self, sentences: Sequence[int]) -> None:
        """Let the next steps compute these sentences; the other entries become padding."""
        upload(self.step_inputs_of(sentences), self.step_inputs)

    def step_inputs_of(self, sentences: Sequence[int]) -> NDArray[np.int32]:
        """`active` [MAX_SENTENCES], then the rows and keys of each entry as blocks [MAX_SENTENCES, 4]."""
        count = len(sentences)
        active = np.full(MAX_SENTENCES, -1, dtype=np.int32)
        active[:count] = sentences
        blocks = np.zeros((MAX_SENTENCES, 4), dtype=np.int32)
        blocks[:count, 0] = np.arange(count) * self.beam
        blocks[:count, 1] = self.beam
        blocks[:count, 2] = self.sources.starts[active[:count]]
        blocks[:count, 3] = self.sources.lengths[active[:count]]
        return np.concatenate([active, blocks.ravel()])

    def request_done_flags(self) -> DoneFlags:
        """The flags of the sentences that are done now, on their way to the host."""
        flags = self.done_flags[0]
        self.done_flags = [*self.done_flags[1:], flags]
        flags.request(self.state.done)
        return flags


@dataclass(frozen=True)
class DoneFlags:
    """A pinned host buffer for which sentences are done, and the event that says that the copy has arrived."""

    flags: Tensor
    arrived: torch.cuda.Event | None

    @staticmethod
    def on(device: torch.device) -> DoneFlags:
        cuda = device.type == "cuda"
        flags = torch.zeros(MAX_SENTENCES, dtype=torch.int32, pin_memory=cuda)
        return DoneFlags(flags, torch.cuda.Event() if cuda else None)

    def request(self, done: Tensor) -> None:
        self.flags.copy_(done, non_blocking=True)
        if self.arrived is not None:
            self.arrived.record()

    def read(self, work: HostWork) -> list[int]:
        """The flags as they were when they were requested; until they arrive the host does pieces of `work`."""
        if self.arrived is not None:
            work_until(self.arrived.query, work)
            self.arrived.synchronize()
        return self.flags.tolist()


def upload(array: NDArray[np.int32], out: Tensor) -> None:
    """Copy to the device, and wait for nothing."""
    source = torch.from_numpy(array)
    out.copy_(source.pin_memory() if out.is_cuda and array.nbytes > PAGEABLE_BYTES else source, non_blocking=True)


def copy_to_host(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy on the host, and the event that says that it has arrived."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    copy.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event() if tensor.is_cuda else None
    if event is not None:
        event.record()
    return copy, event
