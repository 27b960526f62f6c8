"""The measures over a whole test set, record by record; sums are kept, matrices are not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rela.analysis.diversity import diversity_of_queries
from rela.analysis.nulls import null_rows
from rela.analysis.record import AttentionRecord
from rela.analysis.sink import sink_share
from rela.analysis.sparsity import allowed_pairs, zero_weights


@dataclass(frozen=True, eq=False)
class AttentionSummary:
    """What one attention type of one model does over a test set; a layer's figure is the mean over its heads."""

    kind: str
    type: str
    sentences: int
    queries: int
    sparsity: Tensor
    """[L, H], share of allowed weights that are exactly zero."""
    null_rate: Tensor
    """[L, H], share of queries that look at nothing."""
    sink_mass: Tensor
    """[L, H], mean share of a query's attention that rests on </s>."""
    diversity: Tensor
    """[L], mean Jensen–Shannon divergence over heads."""


class Accumulator:
    """Sums of every measure over records of one kind and type.

    Each query (or pair of words) counts the same, however long its sentence is.
    """

    def __init__(self, temperature: float = 1.0):
        self.temperature = temperature
        self.sentences = self.queries = self.pairs = 0
        self._what: tuple[str, str, int, int] | None = None  # kind, type, layers, heads
        self._sums: dict[str, Tensor] = {}

    def add(self, record: AttentionRecord) -> None:
        """Add one record."""
        self._check_same((record.kind, record.type, record.layers, record.heads))
        self._add_sums(
            {
                "zeros": zero_weights(record),
                "nulls": null_rows(record).sum(dim=-1),
                "sink": sink_share(record).sum(dim=-1),
                "diversity": diversity_of_queries(record, self.temperature).sum(dim=-1),
            }
        )
        self.sentences += 1
        self.queries += len(record.queries)
        self.pairs += allowed_pairs(record)

    def merge(self, other: Accumulator) -> None:
        """Add what another accumulator, perhaps of another process, has seen."""
        if other.temperature != self.temperature:
            raise ValueError(f"temperatures {self.temperature} and {other.temperature} do not add up")
        if other._what is None:
            return
        self._check_same(other._what)
        self._add_sums(other._sums)
        self.sentences += other.sentences
        self.queries += other.queries
        self.pairs += other.pairs

    def summary(self) -> AttentionSummary:
        """The rates so far."""
        if self._what is None:
            raise ValueError("no record was added, so there is nothing to sum up")
        kind, type, _, _ = self._what
        return AttentionSummary(
            kind=kind,
            type=type,
            sentences=self.sentences,
            queries=self.queries,
            sparsity=self._sums["zeros"] / self.pairs,
            null_rate=self._sums["nulls"] / self.queries,
            sink_mass=self._sums["sink"] / self.queries,
            diversity=self._sums["diversity"] / self.queries,
        )

    def _check_same(self, what: tuple[str, str, int, int]) -> None:
        if self._what is None:
            self._what = what
        elif self._what != what:
            raise ValueError("a {} {} record of {} layers and {} heads".format(*what) + " among others of another sort")

    def _add_sums(self, sums: dict[str, Tensor]) -> None:
        for name, tensor in sums.items():
            tensor = tensor.to("cpu", torch.float64)
            self._sums[name] = self._sums[name] + tensor if name in self._sums else tensor
