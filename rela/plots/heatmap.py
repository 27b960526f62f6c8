"""The weights of one head as a heatmap with words on both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch, Rectangle

from rela.analysis.nulls import null_rows
from rela.analysis.record import AttentionRecord
from rela.analysis.words import merge_record
from rela.evaluation.alignment import GoldLinks
from rela.plots.style import SMALL, TINY, figure_of, new_figure, word_fonts

# From pale to dark blue: a weight above zero is never as white as a weight of zero.
POSITIVE = LinearSegmentedColormap.from_list("rela-positive", ["#d7e8f5", "#56a0d3", "#0072B2", "#00263d"])
SIGNED = LinearSegmentedColormap.from_list("rela-signed", ["#7a3300", "#D55E00", "#ffffff", "#0072B2", "#00263d"])
NULL_STYLE: dict[str, Any] = {"facecolor": "#ededed", "edgecolor": "#a8a8a8", "hatch": "//////", "linewidth": 0.0}
FORBIDDEN = "#d9d9d9"
GOLD_COLOR = "#D55E00"
LONGEST_WORD = 18
"""Letters of a word on an axis; a longer word is cut and ends in an ellipsis."""
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
        legend(figure_of(drawn), merged, gold is not None, columns=2)
    return drawn


def draw_matrix(
    record: AttentionRecord,
    layer: int,
    head: int,
    axes: Axes | None = None,
    gold: GoldLinks | None = None,
    labels: bool = True,
) -> Axes:
    """One head of a record drawn without merging subwords; see `heatmap`."""
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
        np.ma.masked_where(weights == 0, weights),
        cmap=colours,
        vmin=low,
        vmax=high,
        aspect="auto",
        interpolation="nearest",
    )
    draw_forbidden(axes, allowed)
    nulls = null_rows(record)[layer, head].cpu().numpy()
    draw_null_rows(axes, nulls, allowed)
    if gold is not None:
        draw_gold(axes, gold)
    if labels:
        label_words(axes, record)
    else:
        axes.set(xticks=[], yticks=[])
    axes.set_title(f"layer {layer + 1}, head {head + 1}\n{null_text(nulls)}", fontsize=SMALL)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.6")
    return axes


def null_text(nulls: np.ndarray) -> str:
    """ "25 % null" of the null rows of a head."""
    return f"{100 * nulls.mean() if len(nulls) else 0:.0f} % null"


def scale(weights: np.ndarray) -> tuple[Colormap, float, float]:
    """Colours and their range: 0 to the largest weight, or ± the largest size where weights can be negative."""
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    return (SIGNED, -largest, largest) if (weights < 0).any() else (POSITIVE, 0.0, largest)


def draw_null_rows(axes: Axes, nulls: np.ndarray, allowed: np.ndarray) -> list[Rectangle]:
    """Draw a hatched grey band over the allowed keys of each null row; the bands."""
    bands = []
    for row in np.flatnonzero(nulls):
        columns = np.flatnonzero(allowed[row])
        if len(columns):
            start, end = columns[0], columns[-1] + 1
            bands.append(Rectangle((start - 0.5, row - 0.5), end - start, 1, gid="null-row", **NULL_STYLE))
            axes.add_patch(bands[-1])
    return bands


def draw_forbidden(axes: Axes, allowed: np.ndarray) -> None:
    """Fill the pairs that are not allowed with plain grey."""
    if not allowed.all():
        grey = LinearSegmentedColormap.from_list("forbidden", [FORBIDDEN, FORBIDDEN])
        axes.imshow(
            np.ma.masked_where(allowed, np.ones(allowed.shape)), cmap=grey, aspect="auto", interpolation="nearest"
        )


def draw_gold(axes: Axes, gold: GoldLinks) -> None:
    """Outline each gold link: solid if sure, dotted if only possible."""
    for source, target in sorted(gold.possible):
        line = "-" if (source, target) in gold.sure else ":"
        axes.add_patch(
            Rectangle(
                (source - 0.42, target - 0.42),
                0.84,
                0.84,
                fill=False,
                edgecolor=GOLD_COLOR,
                linewidth=1.0,
                linestyle=line,
                gid="gold-link",
            )
        )


def label_words(axes: Axes, record: AttentionRecord) -> None:
    """Write the keys along the top and the queries down the side."""
    fonts = word_fonts()
    sides = ((axes.xaxis, record.keys), (axes.yaxis, record.queries))
    for axis, tokens in sides:
        axis.set_ticks(range(len(tokens)), [axis_label(token) for token in tokens], fontsize=TINY, fontfamily=fonts)
        for label in axis.get_ticklabels():
            label.set_parse_math(False)  # a price is no formula
        axis.set_tick_params(length=1.5, width=0.5, pad=1.5)
    axes.xaxis.tick_top()
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="left", va="bottom", rotation_mode="anchor")


def axis_label(token: str) -> str:
    """A token as it is written on an axis: cut if long, control characters as �."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in token)
    return shown if len(shown) <= LONGEST_WORD else f"{shown[: LONGEST_WORD - 1]}…"


def matrix_size(record: AttentionRecord) -> tuple[float, float]:
    """Inches that one matrix with its words needs."""
    T, S = len(record.queries), len(record.keys)
    return max(2.2, 1.1 + CELL * S), max(2.0, 1.3 + CELL * T)


def legend(figure: Figure, record: AttentionRecord, gold: bool, columns: int = 5) -> None:
    """Add the legend of heatmaps: the colours from the smallest to the largest weight, and what other cells mean."""
    signed = bool((record.weights < 0).any())
    text = "weight, from − to + the head's largest" if signed else "weight, up to the head's largest"
    handles: list[Any] = [ramp(SIGNED if signed else POSITIVE)]
    others = [
        Patch(facecolor="white", edgecolor="0.6", linewidth=0.5, label="weight 0"),
        Patch(**NULL_STYLE, label="null row: looks at nothing"),
    ]
    if not bool(record.allowed.all()):
        others.append(Patch(facecolor=FORBIDDEN, label="may not look"))
    if gold:
        others.append(Patch(fill=False, edgecolor=GOLD_COLOR, linewidth=1.0, label="gold link"))
    handles += others
    figure.legend(
        handles=handles,
        labels=[text, *(str(patch.get_label()) for patch in others)],
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        handlelength=3.0,
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        fontsize=TINY + 1,
        frameon=False,
    )


def ramp(colours: Colormap, steps: int = 12) -> tuple[Patch, ...]:
    """The colours of a map side by side, for a legend."""
    return tuple(Patch(facecolor=colours(step / (steps - 1)), linewidth=0.0) for step in range(steps))
