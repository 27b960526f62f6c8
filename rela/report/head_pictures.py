"""Pictures of heads for single sentence pairs (Figures 7 to 10): which the report shows, and how they are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rela.alignment.choose import default_choice
from rela.analysis.record import TYPES
from rela.report.examples import find_example, head_of_largest_rise, most_null_layer
from rela.report.pictures import Picture, Selection
from rela.report.results import Report

if TYPE_CHECKING:
    from rela.plots.style import Drawing

COLUMNS = 2
"""Sentence pairs side by side in Figure 10."""


def heads_pictures(report: Report) -> Iterator[Picture]:
    """The heads of one layer for each example of each model."""
    for name, stem in file_stems(report).items():
        model = report.models[name]
        for example in model.examples:
            selection = Selection(name, example.line + 1, layer=most_null_layer(model) + 1)
            file = f"figure7_{stem}_line{selection.line}"
            yield Picture(file, f"{heads_title(selection, selection.layer)}.", selection)


def draw_heads(report: Report, selection: Selection) -> Drawing:
    """Figures 7 to 9: the heads of one layer for one sentence pair; one head alone is drawn larger."""
    from rela.plots.heads import heads_of_layer
    from rela.plots.heatmap import heatmap

    example = find_example(report, selection)
    record = example.true[selection.type]
    layer = default_choice(record.layers).layer if selection.layer is None else selection.layer - 1
    gold = example.gold if selection.gold and selection.type == "cross" else None
    heads = [head - 1 for head in selection.heads]
    if len(heads) == 1:
        return heatmap(record, layer, heads[0], gold=gold)
    return heads_of_layer(record, layer, heads or None, gold, title=heads_title(selection, layer + 1))[0]


def heads_title(selection: Selection, layer: int | None) -> str:
    return f"{selection.model}, line {selection.line}, layer {layer} of {selection.type} attention"


def overview_pictures(report: Report) -> Iterator[Picture]:
    """All heads of each attention type, for the first example of each model."""
    for name, stem in file_stems(report).items():
        for example in report.models[name].examples[:1]:
            for type in TYPES:
                selection = Selection(name, example.line + 1, type, gold=False)
                yield Picture(f"heads_{stem}_{type}", f"{overview_title(selection)}.", selection)


def draw_overview(report: Report, selection: Selection) -> Drawing:
    """Every head of every layer as a small matrix, for one sentence pair."""
    from rela.plots.heads import small_multiples

    example = find_example(report, selection)
    gold = example.gold if selection.gold and selection.type == "cross" else None
    return small_multiples(example.true[selection.type], overview_title(selection), gold)[0][0]


def overview_title(selection: Selection) -> str:
    return f"{selection.model}, line {selection.line}: all heads of {selection.type} attention"


def shuffled_pictures(report: Report) -> Iterator[Picture]:
    """One head on true and shuffled pairs, for each model that has null attention on shuffled ones."""
    for name, stem in file_stems(report).items():
        model = report.models[name]
        if model.examples and head_of_largest_rise(model) is not None:
            caption = f"{shuffled_title(name)}; true pairs above, shuffled ones below."
            yield Picture(f"figure10_{stem}", caption, Selection(name))


def draw_shuffled(report: Report, selection: Selection) -> Drawing:
    """Figure 10: the head whose null rate rises most on shuffled pairs, on some true and shuffled pairs."""
    from rela.plots.heads import heads_of_pairs

    model = report.models[selection.model]
    found = head_of_largest_rise(model)
    if found is None:
        raise ValueError(f"{selection.model} has no null attention on shuffled pairs, so there is nothing to draw")
    shown = model.examples[:COLUMNS]
    records = [example.true["cross"] for example in shown]
    records += [example.shuffled["cross"] for example in shown if example.shuffled is not None]
    notes = ["true pair,"] * len(shown) + ["shuffled pair,"] * len(shown)
    return heads_of_pairs(records, *found, len(shown), shuffled_title(selection.model), notes)[0]


def shuffled_title(model: str) -> str:
    return f"{model}: the head whose null rate rises most on shuffled pairs"


def file_stems(report: Report) -> dict[str, str]:
    """For each model its number and name as part of a file name."""
    return {name: f"{number}_{file_name(name)}" for number, name in enumerate(report.models, start=1)}


def file_name(name: str) -> str:
    """A model's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:40].strip("-.") or "model"
