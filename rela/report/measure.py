"""Everything of section 5.2 measured for any number of models; `rela.report.write.analyse` also draws and writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from rela.analysis.accumulator import Accumulator, AttentionSummary
from rela.analysis.capture import PairRecords, capture
from rela.analysis.diversity import diversity_of_queries
from rela.analysis.links import AlignmentByHead, AlignmentTable
from rela.analysis.nulls import ClassNullRate, NullsByClass, WordClasses
from rela.analysis.record import TYPES
from rela.attention.kinds import kind_of
from rela.data.corpus import read_lines
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks
from rela.filtering.detection import detection
from rela.filtering.noise import NOISES, Pair, make_noise, shuffled_targets
from rela.filtering.pair_scores import PairScore, score_pairs
from rela.progress import Progress, no_progress

TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
"""τ of Table 6."""
EXAMPLE_WORDS = (5, 20)
"""Sentences of so many words make readable pictures."""
SCORED_TOGETHER = 512


@dataclass(frozen=True, eq=False)
class Example:
    """A sentence pair to look at, and the same source with a target of another pair."""

    line: int
    """Its place among the pairs, from 0."""
    true: PairRecords
    shuffled: PairRecords
    gold: GoldLinks | None


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What was measured of one model."""

    kinds: dict[str, str]
    """The attention kind of each type."""
    true: dict[str, AttentionSummary]
    """Of each type, on the pairs as they are."""
    shuffled: dict[str, AttentionSummary]
    """Of each type, with every source beside another pair's target."""
    diversity: dict[float, dict[str, Tensor]]
    """By τ and type, [L]; kinds whose rows are distributions are the same at every τ."""
    alignment: dict[bool, AlignmentByHead] | None
    """Normal (False) and shifted (True); None without gold links."""
    detection: dict[str, dict[str, float]]
    """AUROC by kind of noise, of null_rate, log_prob and both."""
    nulls_by_class: dict[str, ClassNullRate]
    """Null rate of cross attention by the class of the word just written."""
    pair_scores: list[PairScore]
    examples: list[Example]
    heads: int
    width: int


@dataclass(frozen=True, eq=False)
class Report:
    """The models side by side, and how they were measured."""

    models: dict[str, ModelReport]
    settings: dict[str, Any] = field(default_factory=dict)

    def table(self) -> list[dict[str, Any]]:
        """One row of the main figures a model; see `rela.report.tables.summary_rows`."""
        from rela.report.tables import summary_rows

        return summary_rows(self)

    def numbers(self) -> dict[str, Any]:
        """Every number, as report.json holds them."""
        from rela.report.tables import numbers

        return numbers(self)


def measure(
    translators: Mapping[str, Translator],
    pairs: Sequence[Pair],
    gold: Sequence[GoldLinks] | None = None,
    *,
    seed: int = 1,
    examples: int = 3,
    noise: Mapping[str, Sequence[Pair]] | None = None,
    gold_pairs: Sequence[Pair] | None = None,
    gold_tokenised: bool = False,
    word_classes: Callable[[str], str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compare models on sentence pairs; weights are never kept, except those of the examples.

    The shuffled (hallucinated) set is made here: every source with another pair's target. `gold` holds the links of
    `pairs`, or of `gold_pairs` where the alignments belong to other text (`gold_tokenised`: tokenised, where the model
    knows raw text). `noise` names noisy versions of the pairs;
    without it the four kinds of `rela.filtering.noise` are made. `word_classes` classifies the word just written, for
    the null rate by class. `settings` (such as the command) are kept beside what is known here.
    """
    pairs = list(pairs)
    if not translators:
        raise ValueError("no model was given; wanted at least one")
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} sentence pairs; at least two are wanted, to shuffle them")
    aligned = pairs if gold_pairs is None else list(gold_pairs)
    if gold is not None and len(gold) != len(aligned):
        raise ValueError(f"gold links of {len(gold)} sentences for {len(aligned)} pairs; wanted equally many")
    shuffled = shuffled_targets(pairs, seed)
    noisy = {kind: make_noise(pairs, kind, seed) for kind in NOISES} if noise is None else dict(noise)
    noisy = {"shuffled": shuffled, **noisy}
    shown = choose_examples(pairs, examples, seed)
    tell = progress or no_progress
    models = {}
    for name, translator in translators.items():
        lines = Lines(name, pairs, shuffled, aligned, None if gold is None else list(gold), gold_pairs is None,
                      gold_tokenised, shown)  # fmt: skip
        models[name] = measure_model(translator, lines, noisy, word_classes or simple_classes, tell)
    known = {"pairs": len(pairs), "gold": None if gold is None else len(gold), "seed": seed,
             "torch": torch.__version__, "models": {name: describe(t) for name, t in translators.items()}}  # fmt: skip
    return Report(models, {**known, **(settings or {})})


@dataclass(frozen=True)
class Lines:
    """The text one model is measured on."""

    name: str
    pairs: list[Pair]
    shuffled: list[Pair]
    aligned: list[Pair]
    gold: list[GoldLinks] | None
    gold_is_of_pairs: bool
    gold_tokenised: bool
    shown: list[int]


def measure_model(
    translator: Translator,
    lines: Lines,
    noisy: Mapping[str, Sequence[Pair]],
    word_classes: WordClasses,
    tell: Progress,
) -> ModelReport:
    """One model: three streams of records (true, shuffled, aligned), then the scores of clean and noisy pairs."""
    shape = translator.config.model
    kinds = shape.attention_kinds
    true = Measures(kinds, lines.shown)
    by_class = NullsByClass("previous")
    for records in told(capture(translator, lines.pairs), f"{lines.name}: true pairs", len(lines.pairs), tell):
        true.add(records)
        by_class.add(records["cross"], word_classes)
    shuffled = Measures(kinds, lines.shown, temperatures=())
    for records in told(capture(translator, lines.shuffled), f"{lines.name}: shuffled pairs", len(lines.pairs), tell):
        shuffled.add(records)
    clean = scored(translator, lines.pairs, f"{lines.name}: log-probabilities", tell)
    found = {
        kind: detection(clean, scored(translator, pairs, f"{lines.name}: {kind} pairs", tell))
        for kind, pairs in noisy.items()
    }
    gold = lines.gold if lines.gold_is_of_pairs else None
    return ModelReport(
        kinds=kinds,
        true=true.summaries(),
        shuffled=shuffled.summaries(),
        diversity=true.diversity(),
        alignment=None
        if lines.gold is None
        else align(translator, lines.aligned, lines.gold, lines.name, tell, lines.gold_tokenised),
        detection=found,
        nulls_by_class=by_class.rates(),
        pair_scores=clean,
        examples=[Example(i, true.kept[i], shuffled.kept[i], gold[i] if gold else None) for i in lines.shown],
        heads=shape.heads,
        width=shape.width,
    )


class Measures:
    """Sums over the records of one model, and the records of the lines to be shown."""

    def __init__(self, kinds: Mapping[str, str], shown: Sequence[int], temperatures: Sequence[float] = TEMPERATURES):
        self.kinds, self.shown = kinds, frozenset(shown)
        self.sums = {type: Accumulator() for type in TYPES}
        # τ = 1 is the accumulators'; the others change nothing for rows that are distributions
        self.temperatures = [t for t in temperatures if t != 1.0]
        self.more = {
            (temperature, type): torch.zeros((), dtype=torch.float64)
            for temperature in self.temperatures
            for type in TYPES
            if not kind_of(kinds[type]).is_distribution
        }
        self.kept: dict[int, PairRecords] = {}
        self.count = 0

    def add(self, records: PairRecords) -> None:
        for type in TYPES:
            self.sums[type].add(records[type])
        for temperature, type in self.more:
            of_queries = diversity_of_queries(records[type], temperature).sum(dim=-1).cpu()
            self.more[temperature, type] = self.more[temperature, type] + of_queries
        if self.count in self.shown:
            self.kept[self.count] = records
        self.count += 1

    def summaries(self) -> dict[str, AttentionSummary]:
        return {type: sums.summary() for type, sums in self.sums.items()}

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


def align(
    translator: Translator, pairs: Sequence[Pair], gold: Sequence[GoldLinks], name: str, tell: Progress,
    tokenised: bool = False,
) -> dict[bool, AlignmentByHead]:  # fmt: skip
    """The alignment scores of every layer and head, normal and shifted."""
    tables = {shifted: AlignmentTable(shifted) for shifted in (False, True)}
    records_of_pairs = capture(translator, pairs, ("cross",), tokenised=tokenised)
    stream = told(records_of_pairs, f"{name}: gold links", len(pairs), tell)
    for line, (records, links) in enumerate(zip(stream, gold, strict=True), start=1):
        for table in tables.values():
            try:
                table.add(records["cross"], links)
            except ValueError as error:
                raise ValueError(f"sentence {line}: {error}") from None
    return {shifted: table.scores() for shifted, table in tables.items()}


def scored(translator: Translator, pairs: Sequence[Pair], stage: str, tell: Progress) -> list[PairScore]:
    """The scores of pairs, some hundred at a time."""
    scores: list[PairScore] = []
    for start in range(0, len(pairs), SCORED_TOGETHER):
        scores += score_pairs(translator, pairs[start : start + SCORED_TOGETHER])
        tell(stage, len(scores), len(pairs))
    return scores


def told(records: Iterator[PairRecords], stage: str, total: int, tell: Progress) -> Iterator[PairRecords]:
    """The same records, with progress told."""
    for done, record in enumerate(records, start=1):
        yield record
        tell(stage, done, total)


def choose_examples(pairs: Sequence[Pair], count: int, seed: int) -> list[int]:
    """Lines to show: a seeded choice among the pairs whose sides are short enough to read."""
    if count < 0:
        raise ValueError(f"examples is {count}; wanted at least 0")
    low, high = EXAMPLE_WORDS
    lengths = [[len(side.split()) for side in pair] for pair in pairs]
    readable = [i for i, sides in enumerate(lengths) if low <= min(sides) and max(sides) <= high]
    others = sorted(set(range(len(pairs))) - set(readable), key=lambda i: (max(lengths[i]), i))
    chosen = Random(seed).sample(readable, min(count, len(readable)))
    return sorted(chosen + others[: min(count, len(pairs)) - len(chosen)])


def simple_classes(word: str) -> str:
    """A word's class where no word list or tagger is given: comma, other punctuation, number or word."""
    if word == ",":
        return "comma"
    if not any(letter.isalnum() for letter in word):
        return "punctuation"
    return "number" if any(letter.isdigit() for letter in word) else "word"


def load_word_classes(path: str | Path) -> Callable[[str], str]:
    """Word classes from a file of `word TAB class` lines; a word that is not listed falls into `simple_classes`."""
    classes = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, tab, name = line.partition("\t")
        if line.strip() and not (tab and word and name.strip()):
            raise ValueError(f"{path}, line {number}: wanted word, tab, class; found {line[:40]!r}")
        classes[word] = name.strip()
    return lambda word: classes.get(word) or simple_classes(word)


def describe(translator: Translator) -> dict[str, Any]:
    """What a model is, for the record of settings."""
    shape = translator.config.model
    return {"folder": str(translator.folder) if translator.folder else None, "encoder_layers": shape.encoder_layers,
            "decoder_layers": shape.decoder_layers, "width": shape.width, "heads": shape.heads,
            **{f"{type}_attention": kind for type, kind in shape.attention_kinds.items()},
            "vocabulary_size": shape.vocabulary_size}  # fmt: skip
