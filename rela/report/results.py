"""What a report holds: the measures of each model, and how they were made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rela.analysis.accumulator import AttentionSummary
from rela.analysis.capture import PairRecords
from rela.analysis.links import AlignmentByHead
from rela.analysis.nulls import ClassNullRate
from rela.evaluation.alignment import GoldLinks
from rela.filtering.pair_scores import PairScore

TRUE, SHUFFLED, DIVERSITY, CLASSES = "true", "shuffled", "diversity", "classes"
ALIGNMENT, DETECTION, EXAMPLES = "alignment", "detection", "examples"
PARTS = (TRUE, SHUFFLED, DIVERSITY, CLASSES, ALIGNMENT, DETECTION, EXAMPLES)
"""What can be measured; a figure or table says which of these it needs."""


@dataclass(frozen=True, eq=False)
class Example:
    """A sentence pair to look at, and the same source with a target of another pair."""

    line: int
    """The number of the pair in its files, from 0."""
    true: PairRecords
    shuffled: PairRecords | None
    gold: GoldLinks | None


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What was measured of one model; a part that was not measured is empty."""

    kinds: dict[str, str]
    """The attention kind of each type."""
    heads: int
    width: int
    true: dict[str, AttentionSummary] = field(default_factory=dict)
    """Of each type, on the pairs as they are."""
    shuffled: dict[str, AttentionSummary] = field(default_factory=dict)
    """Of each type, with every source beside another pair's target."""
    diversity: dict[float, dict[str, Tensor]] = field(default_factory=dict)
    """By τ and type, [L]; kinds whose rows are distributions are the same at every τ."""
    alignment: dict[bool, AlignmentByHead] | None = None
    """Normal (False) and shifted (True); None without gold links."""
    detection: dict[str, dict[str, float]] = field(default_factory=dict)
    """AUROC by kind of noise, of null_rate, log_prob and both."""
    nulls_by_class: dict[str, ClassNullRate] = field(default_factory=dict)
    """Null rate of cross attention by the class of the word just written."""
    pair_scores: dict[int, PairScore] = field(default_factory=dict)
    """By the number of the pair in its files, from 0."""
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Report:
    """The models side by side, and how they were measured."""

    models: dict[str, ModelReport]
    parts: frozenset[str]
    """Those of PARTS that were measured."""
    settings: dict[str, Any] = field(default_factory=dict)

    def has(self, parts: Iterable[str]) -> bool:
        """Whether all these parts were measured."""
        return self.parts.issuperset(parts)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each model's cross attention, which decides its colour in every figure."""
        return {name: model.kinds["cross"] for name, model in self.models.items()}

    @property
    def true(self) -> dict[str, dict[str, AttentionSummary]]:
        """The summary of each attention type of each model on true pairs."""
        return {name: model.true for name, model in self.models.items()}

    @property
    def shuffled(self) -> dict[str, dict[str, AttentionSummary]]:
        """The same on shuffled pairs."""
        return {name: model.shuffled for name, model in self.models.items()}

    @property
    def alignment(self) -> dict[str, dict[bool, AlignmentByHead]]:
        """The alignment scores of each model, where there are gold links."""
        return {name: model.alignment for name, model in self.models.items() if model.alignment is not None}

    def table(self) -> list[dict[str, Any]]:
        """One row of the main measures a model; see `rela.report.rows.summary_rows`."""
        from rela.report.rows import summary_rows

        return list(summary_rows(self))

    def numbers(self) -> dict[str, Any]:
        """Every number, as report.json holds them."""
        from rela.report.tables import numbers

        return numbers(self)
