"""What heads look at: weights as heatmaps with words on both axes (Figures 7 to 10), and all heads at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from rela.analysis.nulls import null_rows
from rela.analysis.record import AttentionRecord
from rela.analysis.words import merge_record
from rela.evaluation.alignment import GoldLinks
from rela.plots.style import PAGE_WIDTH, SMALL, TINY, figure_of, new_figure, word_fonts

# From pale to dark blue: a weight above zero is never as white as a weight of zero.
POSITIVE = LinearSegmentedColormap.from_list("rela-positive", ["#d7e8f5", "#56a0d3", "#0072B2", "#00263d"])
SIGNED = LinearSegmentedColormap.from_list("rela-signed", ["#7a3300", "#D55E00", "#ffffff", "#0072B2", "#00263d"])
NULL_STYLE: dict[str, Any] = {"facecolor": "#ededed", "edgecolor": "#a8a8a8", "hatch": "//////", "linewidth": 0.0}
FORBIDDEN = "#d9d9d9"
GOLD_COLOR = "#D55E00"
LONGEST_WORD = 18
"""Letters of a word on an axis; the rest is an ellipsis."""
CELL = 0.17
"""Inches of one word on an axis, enough for TINY letters."""


def heatmap(
    record: AttentionRecord,
    layer: int,
    head: int,
    axes: Axes | None = None,
    gold: GoldLinks | None = None,
) -> Axes:
    """One head's weights over words; layer and head count from 0, as in the record.

    The colour is scaled by the head's own largest weight. A weight of zero is white, a null row is hatched grey, a
    key that may not be looked at is plain grey. Gold links are outlined: sure ones solid, possible ones dotted.
    """
    merged = merge_record(record)
    drawn = draw_matrix(merged, layer, head, axes, gold)
    if axes is None:
        explain(figure_of(drawn), merged, gold is not None, columns=2)
    return drawn


def draw_matrix(
    record: AttentionRecord,
    layer: int,
    head: int,
    axes: Axes | None = None,
    gold: GoldLinks | None = None,
    labels: bool = True,
) -> Axes:
    """The weights of one head of a record as they are; see `heatmap`."""
    for name, index, count in (("layer", layer, record.layers), ("head", head, record.heads)):
        if not 0 <= index < count:
            raise ValueError(f"{name} {index} of a record with {count}; wanted 0 to {count - 1}")
    weights = record.weights[layer, head].double().cpu().numpy()  # [T, S]
    allowed = record.allowed.cpu().numpy()
    if axes is None:
        axes = new_figure(*matrix_size(record)).subplots()
    colours, low, high = scale(weights)
    axes.set_facecolor("white")
    axes.imshow(
        np.ma.masked_where(weights == 0, weights), cmap=colours, vmin=low, vmax=high,
        aspect="auto", interpolation="nearest",
    )  # fmt: skip
    draw_forbidden(axes, allowed)
    nulls = null_rows(record)[layer, head].cpu().numpy()
    draw_null_rows(axes, nulls, allowed)
    if gold is not None:
        draw_gold(axes, gold)
    if labels:
        label_words(axes, record)
    else:
        axes.set(xticks=[], yticks=[])
    axes.set_title(f"layer {layer + 1}, head {head + 1}  ({nulls.mean():.0%} null)", fontsize=SMALL)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.6")
    return axes


def scale(weights: np.ndarray) -> tuple[Colormap, float, float]:
    """Colours and their range: 0 to the largest weight, or ± the largest size where weights can be negative."""
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    return (SIGNED, -largest, largest) if (weights < 0).any() else (POSITIVE, 0.0, largest)


def draw_null_rows(axes: Axes, nulls: np.ndarray, allowed: np.ndarray) -> list[Rectangle]:
    """A hatched grey band over each row that looks at nothing, as far as it may look."""
    bands = []
    for row in np.flatnonzero(nulls):
        columns = np.flatnonzero(allowed[row])
        if len(columns):
            start, end = columns[0], columns[-1] + 1
            bands.append(Rectangle((start - 0.5, row - 0.5), end - start, 1, gid="null-row", **NULL_STYLE))
            axes.add_patch(bands[-1])
    return bands


def draw_forbidden(axes: Axes, allowed: np.ndarray) -> None:
    """Plain grey where a query may not look."""
    if not allowed.all():
        grey = LinearSegmentedColormap.from_list("forbidden", [FORBIDDEN, FORBIDDEN])
        axes.imshow(
            np.ma.masked_where(allowed, np.ones(allowed.shape)), cmap=grey, aspect="auto", interpolation="nearest"
        )


def draw_gold(axes: Axes, gold: GoldLinks) -> None:
    """An outline around each gold link: solid if sure, dotted if only possible."""
    for source, target in sorted(gold.possible):
        line = "-" if (source, target) in gold.sure else ":"
        axes.add_patch(
            Rectangle((source - 0.42, target - 0.42), 0.84, 0.84, fill=False, edgecolor=GOLD_COLOR,
                      linewidth=1.0, linestyle=line, gid="gold-link")
        )  # fmt: skip


def label_words(axes: Axes, record: AttentionRecord) -> None:
    """Keys along the top, queries down the side."""
    fonts = word_fonts()
    sides = ((axes.xaxis, record.keys), (axes.yaxis, record.queries))
    for axis, tokens in sides:
        axis.set_ticks(range(len(tokens)), [plain(token) for token in tokens], fontsize=TINY, fontfamily=fonts)
        for label in axis.get_ticklabels():
            label.set_parse_math(False)  # a price is no formula
        axis.set_tick_params(length=1.5, width=0.5, pad=1.5)
    axes.xaxis.tick_top()
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="left", va="bottom", rotation_mode="anchor")


def plain(token: str) -> str:
    """A token fit for an axis: cut if long, control characters as �."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in token)
    return shown if len(shown) <= LONGEST_WORD else f"{shown[: LONGEST_WORD - 1]}…"


def matrix_size(record: AttentionRecord) -> tuple[float, float]:
    """Inches that one matrix with its words needs."""
    T, S = len(record.queries), len(record.keys)
    return max(2.2, 1.1 + CELL * S), max(2.0, 1.3 + CELL * T)


def grid_cell(record: AttentionRecord) -> tuple[float, float]:
    """Inches that one matrix of several needs: closer than `matrix_size`, and still readable."""
    return 0.85 + 0.115 * len(record.keys), 1.0 + 0.125 * len(record.queries)


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
    places = [(merged, layer, head, gold) for head in chosen]
    fitting = max(min(int(PAGE_WIDTH / grid_cell(merged)[0]), 4), 1)
    rows = -(-len(chosen) // fitting)
    return draw_grid(places, columns or -(-len(chosen) // rows), title)  # rows evenly filled


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
    places: Sequence[tuple[AttentionRecord, int, int, GoldLinks | None]], columns: int, title: str
) -> list[Axes]:
    """Matrices in rows of `columns`, a page wide or as wide as their words need."""
    rows = -(-len(places) // columns)
    sizes = [grid_cell(record) for record, *_ in places]
    width, height = (max(side) for side in zip(*sizes, strict=True))
    figure = new_figure(max(PAGE_WIDTH, columns * width), 0.55 + rows * height)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    drawn = [
        draw_matrix(record, layer, head, axes, gold)
        for (record, layer, head, gold), axes in zip(places, grid, strict=False)
    ]
    for axes in grid[len(places) :]:
        axes.set_axis_off()
    explain(figure, places[0][0], gold=any(gold is not None for *_, gold in places))
    if title:
        figure.suptitle(title, fontsize=SMALL, parse_math=False, fontfamily=word_fonts())
    return drawn


def small_multiples(record: AttentionRecord, title: str = "", gold: GoldLinks | None = None) -> list[list[Axes]]:
    """Every head of every layer as a small matrix without words: layers down, heads across."""
    merged = merge_record(record)
    L, H = merged.layers, merged.heads
    figure = new_figure(PAGE_WIDTH, 0.6 + L * PAGE_WIDTH / H * 0.92)
    grid = figure.subplots(L, H, squeeze=False)
    for layer in range(L):
        for head in range(H):
            axes = draw_matrix(merged, layer, head, grid[layer, head], gold, labels=False)
            axes.set_title(f"head {head + 1}" if layer == 0 else "", fontsize=SMALL)
        grid[layer, 0].set_ylabel(f"layer {layer + 1}", fontsize=SMALL)
    explain(figure, merged, gold is not None)
    if title:
        figure.suptitle(title, fontsize=SMALL, parse_math=False, fontfamily=word_fonts())
    return [list(row) for row in grid]


def explain(figure: Figure, record: AttentionRecord, gold: bool, columns: int = 5) -> None:
    """The legend of heatmaps: what white, hatched and outlined cells mean."""
    handles = [
        Patch(facecolor="#0072B2", label="weight, scaled by the head's largest"),
        Patch(facecolor="white", edgecolor="0.6", linewidth=0.5, label="weight 0"),
        Patch(**NULL_STYLE, label="null row: looks at nothing"),
    ]
    if not bool(record.allowed.all()):
        handles.append(Patch(facecolor=FORBIDDEN, label="may not look"))
    if gold:
        handles.append(Patch(fill=False, edgecolor=GOLD_COLOR, linewidth=1.0, label="gold link"))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), fontsize=TINY + 1, frameon=False
    )
