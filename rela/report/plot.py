"""One figure alone, straight from models and text: what `rela plot` draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rela.analysis.capture import capture
from rela.analysis.record import TYPES
from rela.data.corpus import is_empty
from rela.decoding.translate import Translator
from rela.progress import Progress
from rela.report.figures import find_figure
from rela.report.measure import measure
from rela.report.parallel_text import ParallelText
from rela.report.pictures import Selection
from rela.report.results import ALIGNMENT, EXAMPLES, Example, ModelReport, Report

if TYPE_CHECKING:
    from rela.plots.style import Drawing


def plot_figure(
    key: str,
    translators: Mapping[str, Translator],
    text: ParallelText,
    selection: Selection | None = None,
    progress: Progress | None = None,
) -> Drawing:
    """One figure by its key; `selection` says which sentence pair, layer and heads, where a figure shows these."""
    figure = find_figure(key)
    selection = selection or Selection()
    if EXAMPLES in figure.needs:
        selection = replace(selection, model=selection.model or only_model(translators))
        return figure.draw(measure_example(translators[selection.model], text, selection), selection)
    if ALIGNMENT in figure.needs and text.gold is None:
        raise ValueError(f"the figure {key} needs gold links; give them with --gold")
    return figure.draw(measure(translators, text, figure.needs, progress=progress), selection)


def only_model(translators: Mapping[str, Translator]) -> str:
    """The name of the one model given."""
    if len(translators) != 1:
        raise ValueError(f"this figure shows one model; {len(translators)} were given")
    return next(iter(translators))


def measure_example(translator: Translator, text: ParallelText, selection: Selection) -> Report:
    """A report of one model that holds only the records of the sentence pair selected."""
    shape = translator.config.model
    check_selection(selection, len(text.pairs))
    pair = text.pairs[selection.line - 1]
    if is_empty(*pair):
        raise ValueError(f"line {selection.line} is empty on one side; wanted a sentence pair")
    (records,) = capture(translator, [pair], (selection.type,), tokenised=text.tokenised)
    record = records[selection.type]
    if selection.layer is not None and not 1 <= selection.layer <= record.layers:
        raise ValueError(f"layer {selection.layer} of a model with {record.layers}")
    if outside := [head for head in selection.heads if not 1 <= head <= record.heads]:
        raise ValueError(f"head {outside[0]} of a model with {record.heads}")
    gold = text.gold_of_pairs
    example = Example(selection.line - 1, records, None, gold[selection.line - 1] if gold else None)
    model = ModelReport(shape.attention_kinds, shape.heads, shape.width, examples=[example])
    return Report({selection.model: model}, frozenset({EXAMPLES}))


def check_selection(selection: Selection, lines: int) -> None:
    """Refuse an attention type or a line that is not there."""
    if selection.type not in TYPES:
        raise ValueError(f"attention type is {selection.type!r}; wanted one of {', '.join(TYPES)}")
    if not 1 <= selection.line <= lines:
        raise ValueError(f"line {selection.line} of a text of {lines} lines")
