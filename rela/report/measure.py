"""Everything of section 5.2 measured for any number of models; `rela.report.write.analyse` also draws and writes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rela.analysis.accumulator import Accumulator, AttentionSummary
from rela.analysis.capture import PairRecords, capture
from rela.analysis.diversity import diversity_of_queries
from rela.analysis.links import AlignmentByHead, AlignmentTable
from rela.analysis.nulls import NullsByClass
from rela.analysis.record import TYPES
from rela.attention.kinds import kind_of
from rela.decoding.translate import Translator
from rela.filtering.detection import detection
from rela.filtering.noise import Pair
from rela.filtering.pair_scores import PairScore, score_pairs
from rela.progress import Progress, no_progress
from rela.report.examples import choose_examples
from rela.report.parallel_text import ParallelText
from rela.report.results import (
    ALIGNMENT,
    CLASSES,
    DETECTION,
    DIVERSITY,
    EXAMPLES,
    PARTS,
    SHUFFLED,
    TRUE,
    Example,
    ModelReport,
    Report,
)
from rela.report.word_classes import simple_class

TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
"""τ of Table 6."""
SCORED_TOGETHER = 512
"""Pairs, between two reports of progress."""


def measure(
    translators: Mapping[str, Translator],
    text: ParallelText,
    parts: Collection[str] = PARTS,
    *,
    examples: int = 3,
    word_classes: Callable[[str], str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """The models compared on a text; weights are never kept, except those of the examples.

    Only `parts` are measured: all of them if not said, without the alignment where the text has no gold links.
    `word_classes` classifies the word just written, for the null rate by class. `settings` (such as the command) are
    kept beside what is known here.
    """
    if not translators:
        raise ValueError("no model was given; wanted at least one")
    if not text.pairs:
        raise ValueError("the text has no sentence pair; wanted at least one")
    wanted = frozenset(parts) - (frozenset() if text.gold is not None else {ALIGNMENT})
    if len(text.pairs) < 2 and wanted & {SHUFFLED, DETECTION, EXAMPLES}:
        raise ValueError(f"{len(text.pairs)} sentence pairs; at least two are wanted, to shuffle them")
    lines = choose_examples(text.pairs, examples, text.seed) if EXAMPLES in wanted else []
    models = {
        name: ModelMeasurement(name, translator, text, lines, progress or no_progress).run(
            wanted, word_classes or simple_class
        )
        for name, translator in translators.items()
    }
    known = {
        "pairs": len(text.pairs),
        "gold": None if text.gold is None else len(text.gold),
        "seed": text.seed,
        "torch": torch.__version__,
        "models": {name: describe(t) for name, t in translators.items()},
    }
    return Report(models, wanted, {**known, **(settings or {})})


class ModelMeasurement:
    """One model on one text: streams of records (true, shuffled, aligned) and scores of clean and noisy pairs."""

    def __init__(
        self, name: str, translator: Translator, text: ParallelText, lines: Sequence[int], progress: Progress
    ) -> None:
        """`lines` are those whose records are kept, from 0."""
        self.name, self.translator, self.text, self.lines, self.progress = name, translator, text, lines, progress

    def run(self, parts: Collection[str], word_classes: Callable[[str], str]) -> ModelReport:
        """Measure the parts."""
        shape = self.translator.config.model
        by_class = NullsByClass("previous")
        true = Measures(shape.attention_kinds, self.lines, TEMPERATURES if DIVERSITY in parts else ())
        if {TRUE, DIVERSITY, CLASSES, EXAMPLES}.intersection(parts):
            for records in self.records(self.text.pairs, "true pairs"):
                true.add(records)
                if CLASSES in parts:
                    by_class.add(records["cross"], word_classes)
        shuffled = Measures(shape.attention_kinds, self.lines)
        if {SHUFFLED, EXAMPLES}.intersection(parts):
            for records in self.records(self.text.shuffled, "shuffled pairs"):
                shuffled.add(records)
        clean = self.scores(self.text.pairs, "log-probabilities") if DETECTION in parts else []
        gold = self.text.gold_of_pairs
        return ModelReport(
            kinds=shape.attention_kinds,
            heads=shape.heads,
            width=shape.width,
            true=true.summaries(),
            shuffled=shuffled.summaries(),
            diversity=true.diversity() if DIVERSITY in parts else {},
            alignment=self.alignment() if ALIGNMENT in parts else None,
            detection=self.detection(clean) if DETECTION in parts else {},
            nulls_by_class=by_class.rates(),
            pair_scores=dict(zip(self.text.numbers, clean, strict=bool(clean))),
            examples=[
                Example(self.text.numbers[i], true.kept[i], shuffled.kept[i], gold[i] if gold else None)
                for i in self.lines
            ],
        )

    def records(self, pairs: Sequence[Pair], stage: str) -> Iterator[PairRecords]:
        """The records of every pair, with progress reported."""
        stream = capture(self.translator, pairs, tokenised=self.text.tokenised)
        return reported(stream, f"{self.name}: {stage}", len(pairs), self.progress)

    def scores(self, pairs: Sequence[Pair], stage: str) -> list[PairScore]:
        """The scores of every pair, with progress reported."""
        scores: list[PairScore] = []
        for start in range(0, len(pairs), SCORED_TOGETHER):
            scores += score_pairs(self.translator, pairs[start : start + SCORED_TOGETHER])
            self.progress(f"{self.name}: {stage}", len(scores), len(pairs))
        return scores

    def detection(self, clean: Sequence[PairScore]) -> dict[str, dict[str, float]]:
        """AUROC by kind of noise."""
        noisy = self.text.noisy
        return {kind: detection(clean, self.scores(pairs, f"{kind} pairs")) for kind, pairs in noisy.items()}

    def alignment(self) -> dict[bool, AlignmentByHead]:
        """The alignment scores of every layer and head, normal (False) and shifted (True)."""
        tables = {shifted: AlignmentTable(shifted) for shifted in (False, True)}
        pairs, gold = self.text.aligned, self.text.gold or ()
        stream = capture(self.translator, pairs, ("cross",), tokenised=self.text.gold_tokenised)
        records_of_pairs = reported(stream, f"{self.name}: gold links", len(pairs), self.progress)
        for line, (records, links) in enumerate(zip(records_of_pairs, gold, strict=True), start=1):
            for table in tables.values():
                try:
                    table.add(records["cross"], links)
                except ValueError as error:
                    raise ValueError(f"sentence {line}: {error}") from None
        return {shifted: table.scores() for shifted, table in tables.items()}


class Measures:
    """Sums over the records of one model, and the records of some lines."""

    def __init__(self, kinds: Mapping[str, str], lines: Sequence[int], temperatures: Sequence[float] = ()) -> None:
        """`lines`, from 0, are those whose records are kept; `temperatures` are those of `diversity`."""
        self.lines = frozenset(lines)
        self.sums = {type: Accumulator() for type in TYPES}
        # τ = 1 is the accumulators'; the others change nothing for rows that are distributions
        self.temperatures = [temperature for temperature in temperatures if temperature != 1.0]
        self.more = {
            (temperature, type): torch.zeros((), dtype=torch.float64)
            for temperature in self.temperatures
            for type in TYPES
            if not kind_of(kinds[type]).is_distribution
        }
        self.kept: dict[int, PairRecords] = {}
        self.count = 0

    def add(self, records: PairRecords) -> None:
        """Add the records of the next pair."""
        for type in TYPES:
            self.sums[type].add(records[type])
        for temperature, type in self.more:
            of_queries = diversity_of_queries(records[type], temperature).sum(dim=-1).cpu()  # [L]
            self.more[temperature, type] = self.more[temperature, type] + of_queries
        if self.count in self.lines:
            self.kept[self.count] = records
        self.count += 1

    def summaries(self) -> dict[str, AttentionSummary]:
        """The summary of each type; none if no pair was added."""
        return {type: sums.summary() for type, sums in self.sums.items()} if self.count else {}

    def diversity(self) -> dict[float, dict[str, Tensor]]:
        """By τ and type, [L]."""
        plain = {type: summary.diversity for type, summary in self.summaries().items()}
        table = {1.0: plain}
        for temperature in self.temperatures:
            table[temperature] = {
                type: self.more[temperature, type] / self.sums[type].queries
                if (temperature, type) in self.more
                else plain[type]
                for type in TYPES
            }
        return table


def reported(records: Iterator[PairRecords], stage: str, total: int, progress: Progress) -> Iterator[PairRecords]:
    """The same records, with progress reported after each."""
    for done, record in enumerate(records, start=1):
        yield record
        progress(stage, done, total)


def describe(translator: Translator) -> dict[str, Any]:
    """Folder, size and attention kinds of a model, for the settings of a report."""
    shape = translator.config.model
    return {
        "folder": str(translator.folder) if translator.folder else None,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "width": shape.width,
        "heads": shape.heads,
        **{f"{type}_attention": kind for type, kind in shape.attention_kinds.items()},
        "vocabulary_size": shape.vocabulary_size,
    }
