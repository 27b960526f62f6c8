"""Heatmaps of several heads in one figure (Figures 7 to 10), and all heads at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rela.analysis.nulls import null_rows
from rela.analysis.record import AttentionRecord
from rela.analysis.words import merge_record
from rela.evaluation.alignment import GoldLinks
from rela.plots.heatmap import draw_matrix, legend, null_text
from rela.plots.style import PAGE_WIDTH, SMALL, TINY, new_figure, word_fonts

LETTERS_AN_INCH = 12
"""Of a title; few enough for the widest letters of SMALL size."""


def heads_of_layer(
    record: AttentionRecord,
    layer: int,
    heads: Sequence[int] | None = None,
    gold: GoldLinks | None = None,
    columns: int | None = None,
    title: str = "",
) -> list[Axes]:
    """Figures 7 to 9: some heads (all, if not said) of one layer for one sentence pair, words on both axes.

    As many stand side by side as a page holds at readable size, at most four, unless `columns` says otherwise.
    """
    merged = merge_record(record)
    chosen = list(range(record.heads)) if heads is None else list(heads)
    if not chosen:
        raise ValueError("no head was asked for")
    matrices = [(merged, layer, head, gold) for head in chosen]
    fitting = max(min(int(PAGE_WIDTH / grid_cell(merged)[0]), 4), 1)
    rows = -(-len(chosen) // fitting)
    return draw_grid(matrices, columns or -(-len(chosen) // rows), title)  # rows evenly filled


def heads_of_pairs(
    records: Sequence[AttentionRecord], layer: int, head: int, columns: int, title: str = "", notes: Sequence[str] = ()
) -> list[Axes]:
    """Figure 10: one head for several sentence pairs, such as good ones in the first row and bad ones in the second."""
    if not records:
        raise ValueError("no record was given")
    drawn = draw_grid([(merge_record(record), layer, head, None) for record in records], columns, title)
    for axes, note in zip(drawn, notes, strict=False):
        axes.set_title(f"{note} {axes.get_title()}", fontsize=SMALL)
    return drawn


def draw_grid(
    matrices: Sequence[tuple[AttentionRecord, int, int, GoldLinks | None]], columns: int, title: str
) -> list[Axes]:
    """Matrices in rows of `columns`, a page wide or as wide as their words need."""
    rows = -(-len(matrices) // columns)
    sizes = [grid_cell(record) for record, *_ in matrices]
    width, height = (max(side) for side in zip(*sizes, strict=True))
    figure = new_figure(max(PAGE_WIDTH, columns * width), 0.55 + rows * height)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    drawn = [
        draw_matrix(record, layer, head, axes, gold)
        for (record, layer, head, gold), axes in zip(matrices, grid, strict=False)
    ]
    for axes in grid[len(matrices) :]:
        axes.set_axis_off()
    legend(figure, matrices[0][0], gold=any(gold is not None for *_, gold in matrices))
    write_title(figure, title)
    return drawn


def small_multiples(record: AttentionRecord, title: str = "", gold: GoldLinks | None = None) -> list[list[Axes]]:
    """Every head of every layer as a small matrix without words: layers down, heads across."""
    merged = merge_record(record)
    L, H = merged.layers, merged.heads
    figure = new_figure(PAGE_WIDTH, 0.6 + L * (PAGE_WIDTH / H * 0.92 + 0.15))
    nulls = null_rows(merged).cpu().numpy()  # [L, H, T]
    grid = figure.subplots(L, H, squeeze=False)
    for layer in range(L):
        for head in range(H):
            axes = draw_matrix(merged, layer, head, grid[layer, head], gold, labels=False)
            axes.set_title(f"head {head + 1}" if layer == 0 else "", fontsize=SMALL)
            axes.set_xlabel(null_text(nulls[layer, head]), fontsize=TINY + 1, labelpad=2)
        grid[layer, 0].set_ylabel(f"layer {layer + 1}", fontsize=SMALL)
    legend(figure, merged, gold is not None)
    write_title(figure, title)
    return [list(row) for row in grid]


def write_title(figure: Figure, title: str) -> None:
    """A title above all matrices, on as many lines as its width needs."""
    if title:
        letters = int(figure.get_size_inches()[0] * LETTERS_AN_INCH)
        lines = "\n".join(wrap(title, letters, break_on_hyphens=False))
        figure.suptitle(lines, fontsize=SMALL, parse_math=False, fontfamily=word_fonts())


def grid_cell(record: AttentionRecord) -> tuple[float, float]:
    """Inches that one matrix of several needs: closer than `matrix_size`, and still readable."""
    return max(0.85 + 0.115 * len(record.keys), 1.3), 1.15 + 0.125 * len(record.queries)
