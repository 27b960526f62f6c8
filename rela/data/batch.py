"""A batch: sentence pairs packed end to end, without padding, or filled up to one constant shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.data.subwords import BOS, EOS, PAD
from rela.packing import Packing

IdSequence = Sequence[int] | NDArray[Any]


@dataclass(frozen=True)
class StaticShape:
    """The constant sizes of a batch: M source tokens, N target tokens and B sentences, filler included."""

    source: int
    target: int
    sentences: int
    longest_source: int = 0
    """If above 0, the `max_seqlen` of every batch, so that not even an integer changes between batches."""
    longest_target: int = 0


@dataclass(frozen=True)
class Batch:
    """Sentence pairs packed one after another: M source tokens, N target tokens, B sentences, no padding.

    With a static shape each tensor ends in filler: PAD ids at position 0 that belong to no sentence, and
    sentences of length zero.
    """

    source: Tensor
    """int64 [M]: pieces and EOS of each sentence."""
    target_in: Tensor
    """int64 [N]: BOS and pieces."""
    target_out: Tensor
    """int64 [N]: pieces and EOS."""
    source_positions: Tensor
    target_positions: Tensor
    source_packing: Packing
    """Where the sentences of `source` begin and end, EOS included."""
    target_packing: Packing
    """The same for `target_in` and `target_out`, BOS or EOS included."""
    sentences: int
    """Without filler."""
    target_tokens: int
    """Without filler, EOS included."""

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        return self._map(lambda tensor: tensor.pin_memory())

    def tensors(self) -> list[Tensor]:
        """All of them, in one order."""
        tensors = [value for value in vars(self).values() if isinstance(value, Tensor)]
        return [*tensors, self.source_packing.cu_seqlens, self.target_packing.cu_seqlens]

    @property
    def shape(self) -> tuple[int, ...]:
        """Every size a compiled step depends on."""
        longest = self.source_packing.max_seqlen, self.target_packing.max_seqlen
        return (*(tensor.numel() for tensor in self.tensors()), *longest)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Packing, Tensor, Tensor, Packing]:
        """What Transformer.forward takes, in its order."""
        sources = self.source, self.source_positions, self.source_packing
        return *sources, self.target_in, self.target_positions, self.target_packing

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif isinstance(value, Packing):
                changed[name] = value.map(change)
        return dataclasses.replace(self, **changed)


def pack(pairs: Sequence[tuple[IdSequence, IdSequence]], static: StaticShape | None = None) -> Batch:
    """One batch of pairs of ids without BOS and EOS, lists or arrays; with `static`, of exactly these sizes."""
    if not pairs:
        raise ValueError("no pairs to pack")
    sources, targets = zip(*pairs, strict=True)
    shape = static or StaticShape(0, 0, 0)
    source = pack_side(sources, shape.source, shape.sentences)
    target = pack_side(targets, shape.target, shape.sentences)
    return Batch(
        source=torch.from_numpy(source.with_end),
        target_in=torch.from_numpy(target.with_start),
        target_out=torch.from_numpy(target.with_end),
        source_positions=torch.from_numpy(source.positions),
        target_positions=torch.from_numpy(target.positions),
        source_packing=Packing(torch.from_numpy(source.cu_seqlens), max(source.longest, shape.longest_source)),
        target_packing=Packing(torch.from_numpy(target.cu_seqlens), max(target.longest, shape.longest_target)),
        sentences=len(pairs),
        target_tokens=target.tokens,
    )


@dataclass(frozen=True)
class PackedSide:
    """One side of a batch as arrays: ids after BOS, ids before EOS, positions, and where sentences begin and end."""

    with_start: NDArray[np.int64]
    with_end: NDArray[np.int64]
    positions: NDArray[np.int64]
    cu_seqlens: NDArray[np.int32]
    longest: int
    tokens: int


def pack_side(sentences: Sequence[Any], size: int, count: int) -> PackedSide:
    """Sentences end to end with room for one more id in each; `size` and `count` are 0 or the static sizes."""
    lengths = np.fromiter((len(sentence) + 1 for sentence in sentences), np.int64, count=len(sentences))
    ends = np.cumsum(lengths)
    tokens = int(ends[-1])
    size, count = size or tokens, count or len(sentences)
    if tokens > size or len(sentences) > count:
        raise ValueError(f"{tokens} tokens in {len(sentences)} sentences; the static shape holds {size} in {count}")
    starts = ends - lengths
    pieces = np.concatenate([np.asarray(sentence, dtype=np.int64) for sentence in sentences])
    with_start, with_end, positions = (np.full(size, PAD, np.int64) for _ in range(3))
    insert_mark(with_start[:tokens], starts, BOS, pieces)
    insert_mark(with_end[:tokens], ends - 1, EOS, pieces)
    positions[:tokens] = np.arange(tokens) - np.repeat(starts, lengths)
    cu_seqlens = np.full(count + 1, tokens, np.int32)
    cu_seqlens[: len(sentences)] = starts
    return PackedSide(with_start, with_end, positions, cu_seqlens, int(lengths.max()), tokens)


def insert_mark(out: NDArray[np.int64], where: NDArray[np.int64], mark: int, pieces: NDArray[np.int64]) -> None:
    """Write `mark` at the positions `where` of `out`, and the pieces, in order, at all others."""
    free = np.ones(len(out), dtype=bool)
    free[where] = False
    out[where] = mark
    out[free] = pieces
