"""Word links from cross attention, and their error rate by layer and head (Figure 4, Table 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rela.analysis.record import END, AttentionRecord
from rela.analysis.words import merge_subwords, words
from rela.evaluation.alignment import AlignmentCounts, AlignmentScore, GoldLinks, Link

NO_LINK = -1


def word_weights(record: AttentionRecord, shifted: bool = False) -> Tensor:
    """[L, H, T', S'], the weight of each source word for each target word; </s> is on neither side.

    Target token t takes the row of the step that outputs it (normal attention, α) or of the next step, whose input
    it is (`shifted`, α[1:]). Of the n + 1 rows for y₁ … yₙ </s> each of the two leaves one out. The column of the
    source's </s> is dropped before anything is compared, since no word link can point there: a row whose
    weight is mostly there still names its best source word. Pieces are then merged to words.
    """
    if record.type != "cross":
        raise ValueError(f"links come from cross attention; the record holds {record.type!r}")
    if not record.queries or record.queries[-1] != END:
        raise ValueError(
            f"the last query is {record.queries[-1:]}; wanted {END}, as queries are named by what they output"
        )
    rows = record.weights[:, :, 1:] if shifted else record.weights[:, :, :-1]
    columns = [position for position, key in enumerate(record.keys) if key != END]
    rows = rows[..., torch.tensor(columns, dtype=torch.long, device=rows.device)]
    return merge_subwords(rows, record.queries[:-1], [record.keys[position] for position in columns])


def layer_attention(weights: Tensor) -> Tensor:
    """[L, T, S], the weights [L, H, T, S] averaged over the heads of each layer (the paper's definition)."""
    return weights.mean(dim=1)


def best_source(weights: Tensor) -> Tensor:
    """[..., T], for each row of [..., T, S] the key of the largest weight, the first of equals; NO_LINK for a null row.

    A row without one positive weight links to nothing: a head that is off proposes nothing.
    """
    if weights.size(-1) == 0:
        return torch.full(weights.shape[:-1], NO_LINK, dtype=torch.long, device=weights.device)
    # argmax does not promise which of equal weights it returns; the first position at the maximum is always the same.
    largest = weights.amax(dim=-1, keepdim=True)
    positions = torch.arange(weights.size(-1), device=weights.device)
    first = torch.where(weights == largest, positions, weights.size(-1)).amin(dim=-1)
    return torch.where(largest.squeeze(-1) > 0, first, NO_LINK)


def links_of(sources: Iterable[int]) -> frozenset[Link]:
    """The links of one row of `best_source`."""
    return frozenset((source, target) for target, source in enumerate(sources) if source != NO_LINK)


def matrix_links(weights: Tensor) -> frozenset[Link]:
    """The links (source, target) of one weight matrix [T, S]: each target word to the source word it weighs most.

    A = {(argmax_s α[t, s], t) : max_s α[t, s] > 0}
    """
    return links_of(best_source(weights).tolist())


def head_links(record: AttentionRecord, layer: int, head: int, shifted: bool = False) -> frozenset[Link]:
    """The links of one head."""
    return matrix_links(word_weights(record, shifted)[layer, head])


def layer_links(record: AttentionRecord, layer: int, shifted: bool = False) -> frozenset[Link]:
    """The links of the layer attention of one layer."""
    return matrix_links(layer_attention(word_weights(record, shifted))[layer])


@dataclass(frozen=True)
class AlignmentByHead:
    """The alignment scores of every layer's attention and of every head."""

    layers: tuple[AlignmentScore, ...]
    heads: tuple[tuple[AlignmentScore, ...], ...]

    @property
    def best_heads(self) -> tuple[int, ...]:
        """For each layer the head of lowest AER, the first of equals."""
        return tuple(min(range(len(row)), key=lambda head: row[head].aer) for row in self.heads)

    @property
    def best_head(self) -> tuple[int, int]:
        """(layer, head) of the lowest AER of all."""
        return min(enumerate(self.best_heads), key=lambda best: self.heads[best[0]][best[1]].aer)

    @property
    def average_of_layers(self) -> float:
        """AoL of Table 5: the mean over layers of the AER of the layer attention."""
        return sum(score.aer for score in self.layers) / len(self.layers)

    @property
    def average_of_best_heads(self) -> float:
        """AoH of Table 5: the mean over layers of the AER of the layer's best head."""
        return sum(row[head].aer for row, head in zip(self.heads, self.best_heads, strict=True)) / len(self.heads)


Keep = Callable[[frozenset[Link], Sequence[str], Sequence[str]], frozenset[Link]]
"""Some of the links of a sentence pair, whose words follow."""


class AlignmentTable:
    """Counts the links of every layer and head, or what `keep` keeps of them, against gold; keeps counts only."""

    def __init__(self, shifted: bool = False, keep: Keep | None = None):
        self.shifted, self.keep = shifted, keep
        self._layers: list[AlignmentCounts] = []
        self._heads: list[list[AlignmentCounts]] = []

    def add(self, record: AttentionRecord, gold: GoldLinks) -> None:
        """Count one sentence pair; gold links beyond its words mean that the two do not belong together."""
        weights = word_weights(record, self.shifted)
        L, H, T, S = weights.shape
        if outside := [link for link in sorted(gold.possible) if link[0] >= S or link[1] >= T]:
            source, target = outside[0]
            raise ValueError(f"gold link {source}-{target} is outside {S} source and {T} target words")
        if not self._heads:
            self._layers = [AlignmentCounts()] * L
            self._heads = [[AlignmentCounts()] * H for _ in range(L)]
        if (len(self._heads), len(self._heads[0])) != (L, H):
            raise ValueError(f"a record of {L} layers and {H} heads among others of another size")
        sides = words([key for key in record.keys if key != END]), words(record.queries[:-1])

        def counts(sources: list[int]) -> AlignmentCounts:
            links = links_of(sources)
            return AlignmentCounts.of(links if self.keep is None else self.keep(links, *sides), gold)

        by_head = best_source(weights).tolist()  # [L][H][T]
        by_layer = best_source(layer_attention(weights)).tolist()  # [L][T]
        for layer in range(L):
            self._layers[layer] += counts(by_layer[layer])
            for head in range(H):
                self._heads[layer][head] += counts(by_head[layer][head])

    def scores(self) -> AlignmentByHead:
        """The scores so far."""
        if not self._heads:
            raise ValueError("no record was added, so there is nothing to score")
        return AlignmentByHead(
            tuple(counts.score() for counts in self._layers),
            tuple(tuple(counts.score() for counts in row) for row in self._heads),
        )
