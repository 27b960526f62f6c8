"""The figures of the pages of results, drawn from the rows: training curves, and Figures 3 to 6 of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from experiments import paper
from experiments.cells import Cell, Cells
from experiments.tables import MAIN, TYPES, paper_rows
from rela.plots.layers import TITLES, draw_layers, finish_panel, model_legend
from rela.plots.style import (
    DASHED,
    PALETTE,
    SMALL,
    SOLID,
    TEXT,
    figure_of,
    line_styles,
    new_figure,
    panels,
    save_figure,
)

Measure = Sequence[str]
Draw = Callable[[Mapping[str, Cell]], Axes]


def measured(cells: Cells) -> dict[str, Cell]:
    """The models of the paper that have been analysed, by their names."""
    found = {name: cells[MAIN, kind] for kind, name in paper.NAMES.items()}
    return {name: cell for name, cell in found.items() if cell.analysed}


def by_layer(cell: Cell, *names: str) -> list[float]:
    """A measure by layer, the mean over the runs."""
    found = []
    for row in cell.analysed:
        value: Any = row["analysis"]
        for name in names:
            value = value[name]
        found.append(value)
    return [statistics.fmean(values) for values in zip(*found, strict=True)]


def layers_of_types(cells: Mapping[str, Cell], label: str, *lines: tuple[Any, Measure]) -> tuple[Axes, ...]:
    """A panel for each attention type, and in it the measures of each model by layer."""
    drawn = panels(len(TYPES), None)
    styles = line_styles(cells)
    for axes, type in zip(drawn, TYPES, strict=True):
        for name, cell in cells.items():
            for line, measure in lines:
                draw_layers(axes, by_layer(cell, *measure, type), styles[name], line, name)
        finish_panel(axes, TITLES[type])
    drawn[0].set_ylabel(label, fontsize=TEXT)
    return drawn


def sparsity(cells: Mapping[str, Cell]) -> Axes:
    """Figure 3."""
    drawn = layers_of_types(cells, "sparsity rate", (SOLID, ["sparsity"]))
    drawn[0].set_ylim(-0.03, 1.03)
    model_legend(drawn, cells)
    return drawn[0]


def error_rate(cells: Mapping[str, Cell]) -> Axes:
    """Figure 4: solid the best head of each layer, dashed the layer attention."""
    drawn = panels(2, None, height=2.9)
    styles = line_styles(cells)
    titles = {"normal": "normal attention, α", "shifted": "shifted attention, α[1:]"}
    for axes, (way, title) in zip(drawn, titles.items(), strict=True):
        for name, cell in cells.items():
            heads = [[min(layer) for layer in row["analysis"]["aer"][way]["heads"]] for row in cell.analysed]
            best = [statistics.fmean(values) for values in zip(*heads, strict=True)]
            draw_layers(axes, best, styles[name], SOLID, name)
            draw_layers(axes, by_layer(cell, "aer", way, "layers"), styles[name], DASHED, name)
        finish_panel(axes, title)
    drawn[0].set_ylabel("AER (%), lower is better", fontsize=TEXT)
    model_legend(drawn, cells, solid="best head", dashed="layer attention")
    return drawn[0]


def diversity(cells: Mapping[str, Cell]) -> Axes:
    """Figure 5."""
    drawn = layers_of_types(cells, "JS divergence over heads", (SOLID, ["diversity", "1"]))
    drawn[0].set_ylim(bottom=0)
    model_legend(drawn, cells)
    return drawn[0]


def null_rate(cells: Mapping[str, Cell]) -> Axes:
    """Figure 6: solid on true pairs, dashed on shuffled ones."""
    drawn = layers_of_types(cells, "null rate", (SOLID, ["null_rate"]), (DASHED, ["null_rate_shuffled"]))
    drawn[0].set_ylim(bottom=-0.02)
    model_legend(drawn, cells, solid="true pairs", dashed="shuffled pairs")
    return drawn[0]


FIGURES: dict[str, tuple[str, Draw]] = {
    "figure-3": ("Sparsity rate by layer, the mean over heads and runs.", sparsity),
    "figure-4": ("AER by layer: solid the best head, dashed the layer attention.", error_rate),
    "figure-5": ("Head diversity by layer, τ = 1.", diversity),
    "figure-6": ("Null rate by layer: solid on true pairs, dashed on shuffled ones.", null_rate),
}


def curves(cells: Cells) -> Axes:
    """The training loss of the first run of each setting of Table 1, failed ones too."""
    axes = new_figure(height=4.2).subplots()
    drawn = {paper.TABLE_1[number][0]: cell.rows[0] for number, cell in paper_rows(cells).items() if cell.rows}
    styles = line_styles(drawn)
    for number, (name, row) in enumerate(drawn.items()):
        curve = row["training"]["curve"]
        points = [(step, nll) for step, nll in zip(curve["step"], curve["nll"], strict=True) if nll is not None]
        line = SOLID if number < len(PALETTE) else DASHED
        axes.plot(*zip(*points, strict=True), color=styles[name].color, linestyle=line, linewidth=1.2, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.yaxis.set_minor_formatter("{x:.3g}")
    axes.tick_params(which="both", labelsize=SMALL)
    axes.set_xlabel("step", fontsize=TEXT)
    axes.set_ylabel("training loss (nats a token)", fontsize=TEXT)
    axes.grid(axis="y", which="both", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    figure_of(axes).legend(loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)
    return axes


def draw_all(cells: Cells, folder: Path) -> dict[str, str]:
    """Draw the figures that there are rows for into a folder; their captions by name."""
    drawn = {}
    if any(cell.rows for cell in paper_rows(cells).values()):
        save_figure(curves(cells), folder / "curves", ["svg"])
        drawn["curves"] = "Training loss, first run of each setting."
    if chosen := measured(cells):
        for name, (caption, draw) in FIGURES.items():
            save_figure(draw(chosen), folder / name, ["svg"])
            drawn[name] = caption
    return drawn
