"""Batches of the GPU engine: sources packed, cut into blocks of queries, and split to fit static buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rela.data.subwords import EOS
from rela.decoding.engines.gpu_network import ENCODER_QUERIES

# Sentences of a batch at most.
MAX_SENTENCES = 256
# Entries of the cache (one for each beam of each position) of a batch at most, unless one sentence needs more: 3 GiB
# for Transformer base in bfloat16.
MAX_CACHE_ENTRIES = 1 << 18


@dataclass(frozen=True)
class PackedSources:
    """Sources one after another, each with its </s>, and cut into blocks of queries for the encoder."""

    ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    blocks: NDArray[np.int32]
    """[blocks, 4]: first query, queries, first key, keys."""

    @property
    def padded_tokens(self) -> int:
        """Rounded up, so that few graphs serve all batches."""
        return smallest_size(len(self.ids))

    @property
    def padded_blocks(self) -> int:
        return smallest_size(len(self.blocks))


def pack_sources(sources: Sequence[Sequence[int]]) -> PackedSources:
    """Sources of ids, without </s>, packed."""
    lengths = np.fromiter((len(source) + 1 for source in sources), np.int32, len(sources))
    starts = np.cumsum(lengths, dtype=np.int32) - lengths
    tokens = chain.from_iterable((*source, EOS) for source in sources)
    ids = np.fromiter(tokens, np.int32, int(lengths.sum()))
    positions = np.arange(len(ids), dtype=np.int32) - np.repeat(starts, lengths)
    return PackedSources(ids, positions, starts, lengths, query_blocks(starts, lengths))


def query_blocks(starts: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    """The encoder's blocks [blocks, 4] of at most ENCODER_QUERIES queries: first query, queries, first key, keys."""
    per_sentence = -(-lengths // ENCODER_QUERIES)
    sentence = np.repeat(np.arange(len(lengths)), per_sentence)
    number = np.arange(len(sentence)) - np.repeat(np.cumsum(per_sentence) - per_sentence, per_sentence)
    offset = number * ENCODER_QUERIES
    queries = np.minimum(ENCODER_QUERIES, lengths[sentence] - offset)
    return np.stack([starts[sentence] + offset, queries, starts[sentence], lengths[sentence]], 1).astype(np.int32)


@dataclass(frozen=True)
class GpuBatch:
    """Sentences that fit into the static buffers together, and how long each translation may be."""

    sources: PackedSources
    limits: Sequence[int]


def split_batch(sources: Sequence[Sequence[int]], limits: Sequence[int], beam: int) -> list[GpuBatch]:
    """Batches that fit into the static buffers: all of a search that can be done before the device is free."""
    return [GpuBatch(pack_sources(sources[part]), limits[part]) for part in fitting_slices(limits, beam)]


def fitting_slices(limits: Sequence[int], beam: int) -> Iterator[slice]:
    """Slices of consecutive sentences that fit into the static buffers together."""
    start = 0
    while start < len(limits):
        end, longest = start + 1, limits[start]
        while end < len(limits) and end - start < MAX_SENTENCES:
            longest = max(longest, limits[end])
            if (end + 1 - start) * (longest + 1) * beam > MAX_CACHE_ENTRIES:
                break
            end += 1
        yield slice(start, end)
        start = end


def smallest_size(number: int, sizes: Iterable[int] | None = None) -> int:
    """The smallest of the sizes that is not below the number; without sizes, of 8, 12, 16, 24, 32, 48, ...."""
    if sizes is not None:
        return min(size for size in sizes if size >= number)
    power = max(8, 1 << (max(number, 1) - 1).bit_length())
    return power * 3 // 4 if power > 8 and number <= power * 3 // 4 else power
