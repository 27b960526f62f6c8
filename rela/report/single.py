"""One figure alone, straight from models and text: what `rela plot` draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from rela.alignment.choose import default_choice
from rela.analysis.accumulator import Accumulator, AttentionSummary
from rela.analysis.capture import capture
from rela.analysis.record import TYPES, AttentionRecord
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks
from rela.filtering.detection import detection
from rela.filtering.noise import NOISES, Pair, make_noise, shuffled_targets
from rela.plots.heads import heads_of_layer, heatmap, small_multiples
from rela.plots.layers import (
    diversity_by_layer,
    error_rate_by_layer,
    null_rate_by_layer,
    sink_by_layer,
    sparsity_by_layer,
)
from rela.plots.noise import detection_by_noise
from rela.progress import Progress, no_progress
from rela.report.measure import align, scored, told


@dataclass(frozen=True)
class Wanted:
    """What a figure is drawn from; lines, layers and heads count from 1, as on the command line."""

    translators: Mapping[str, Translator]
    pairs: Sequence[Pair]
    gold: Sequence[GoldLinks] | None = None
    seed: int = 1
    type: str = "cross"
    line: int = 1
    layer: int | None = None
    heads: Sequence[int] = ()
    progress: Progress = no_progress
    tokenised: bool = False
    """The pairs are tokenised, and the models know raw text."""


def draw(figure: str, wanted: Wanted) -> Axes:
    """Draw one figure by name; the axes of its first panel."""
    if figure not in FIGURES:
        raise ValueError(f"there is no figure {figure!r}; wanted one of {', '.join(FIGURES)}")
    if wanted.type not in TYPES:
        raise ValueError(f"attention type is {wanted.type!r}; wanted one of {', '.join(TYPES)}")
    return FIGURES[figure](wanted)


def summaries(wanted: Wanted, pairs: Sequence[Pair]) -> dict[str, dict[str, AttentionSummary]]:
    """The summary of each attention type of each model."""
    found = {}
    for name, translator in wanted.translators.items():
        sums = {type: Accumulator() for type in TYPES}
        records_of_pairs = capture(translator, pairs, tokenised=wanted.tokenised)
        for records in told(records_of_pairs, name, len(pairs), wanted.progress):
            for type in TYPES:
                sums[type].add(records[type])
        found[name] = {type: sums[type].summary() for type in TYPES}
    return found


def _null_rate(wanted: Wanted) -> Axes:
    shuffled = shuffled_targets(wanted.pairs, wanted.seed)
    return null_rate_by_layer(summaries(wanted, wanted.pairs), summaries(wanted, shuffled))[0]


def _error_rate(wanted: Wanted) -> Axes:
    if wanted.gold is None:
        raise ValueError("the figure aer needs gold links; give them with --gold")
    if len(wanted.gold) != len(wanted.pairs):
        raise ValueError(
            f"gold links of {len(wanted.gold)} sentences for {len(wanted.pairs)} pairs; wanted equally many"
        )
    return error_rate_by_layer(
        {
            name: align(model, wanted.pairs, wanted.gold, name, wanted.progress, wanted.tokenised)
            for name, model in wanted.translators.items()
        }
    )[0]


def _noise(wanted: Wanted) -> Axes:
    found = {}
    for name, model in wanted.translators.items():
        clean = scored(model, wanted.pairs, f"{name}: clean pairs", wanted.progress)
        noisy = {kind: make_noise(wanted.pairs, kind, wanted.seed) for kind in NOISES}
        found[name] = {
            kind: detection(clean, scored(model, pairs, f"{name}: {kind} pairs", wanted.progress))
            for kind, pairs in noisy.items()
        }
    return detection_by_noise(found)


def _record(wanted: Wanted) -> tuple[str, AttentionRecord, int, GoldLinks | None]:
    """Model name, record, layer (from 0) and gold links of the one line asked for."""
    if len(wanted.translators) != 1:
        raise ValueError(f"this figure shows one model; {len(wanted.translators)} were given")
    if not 1 <= wanted.line <= len(wanted.pairs):
        raise ValueError(f"line {wanted.line} of a text of {len(wanted.pairs)} lines")
    (name, translator), *_ = wanted.translators.items()
    (records,) = capture(translator, [wanted.pairs[wanted.line - 1]], (wanted.type,), tokenised=wanted.tokenised)
    record = records[wanted.type]
    layer = default_choice(record.layers).layer if wanted.layer is None else wanted.layer - 1
    if not 0 <= layer < record.layers:
        raise ValueError(f"layer {layer + 1} of a model with {record.layers}")
    if outside := [head for head in wanted.heads if not 1 <= head <= record.heads]:
        raise ValueError(f"head {outside[0]} of a model with {record.heads}")
    gold = wanted.gold[wanted.line - 1] if wanted.gold is not None and wanted.type == "cross" else None
    return name, record, layer, gold


def _heads(wanted: Wanted) -> Axes:
    name, record, layer, gold = _record(wanted)
    title = f"{name}, line {wanted.line}, layer {layer + 1} of {wanted.type} attention"
    if len(wanted.heads) == 1:
        return heatmap(record, layer, wanted.heads[0] - 1, gold=gold)
    return heads_of_layer(record, layer, [head - 1 for head in wanted.heads] or None, gold, title=title)[0]


def _overview(wanted: Wanted) -> Axes:
    name, record, _, gold = _record(wanted)
    title = f"{name}, line {wanted.line}: all heads of {wanted.type} attention"
    return small_multiples(record, title, gold)[0][0]


FIGURES: dict[str, Callable[[Wanted], Axes]] = {
    "sparsity": lambda wanted: sparsity_by_layer(summaries(wanted, wanted.pairs))[0],
    "aer": _error_rate,
    "diversity": lambda wanted: diversity_by_layer(summaries(wanted, wanted.pairs))[0],
    "null-rate": _null_rate,
    "sink": lambda wanted: sink_by_layer(summaries(wanted, wanted.pairs))[0],
    "noise": _noise,
    "heads": _heads,
    "overview": _overview,
}
