"""Measures by layer, for several models at once: Figures 3 to 6 of the paper, and the share of attention on </s>."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from rela.analysis.accumulator import AttentionSummary
from rela.analysis.links import AlignmentByHead
from rela.analysis.record import TYPES
from rela.plots.style import DASHED, SMALL, SOLID, TEXT, LineStyle, figure_of, line_styles, panels

Summaries = Mapping[str, Mapping[str, AttentionSummary]]
"""The summary of each attention type of each model: summaries["rela-g"]["cross"]."""
TITLES = {"encoder": "encoder attention", "decoder": "decoder attention", "cross": "cross attention"}
LINE: dict[str, Any] = {"linewidth": 1.4, "markeredgecolor": "white", "markeredgewidth": 0.5}


def sparsity_by_layer(summaries: Summaries, axes: Iterable[Axes] | None = None) -> tuple[Axes, ...]:
    """Figure 3: the sparsity rate of each layer, the mean over its heads; a panel for each attention type."""
    drawn = _by_type(summaries, lambda summary: summary.sparsity.mean(dim=-1), axes)
    drawn[0].set_ylabel("sparsity rate", fontsize=TEXT)
    drawn[0].set_ylim(-0.03, 1.03)
    model_legend(drawn, summaries, kinds=kinds_of(summaries))
    return drawn


def error_rate_by_layer(
    scores: Mapping[str, Mapping[bool, AlignmentByHead]],
    axes: Iterable[Axes] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> tuple[Axes, Axes]:
    """Figure 4: AER of each layer, scores[model][shifted]; solid the best head, dashed the layer attention."""
    normal, shifted = panels(2, axes, height=2.9)
    styles = line_styles(scores, kinds)
    for axes_, is_shifted, title in (
        (normal, False, "normal attention, α"),
        (shifted, True, "shifted attention, α[1:]"),
    ):
        for name, by_shift in scores.items():
            found = by_shift[is_shifted]
            best = [100 * row[head].aer for row, head in zip(found.heads, found.best_heads, strict=True)]
            draw_layers(axes_, best, styles[name], SOLID, name)
            layers = [100 * score.aer for score in found.layers]
            draw_layers(axes_, layers, styles[name], DASHED, f"{name}, layer attention")
        finish_panel(axes_, title)
    normal.set_ylabel("AER (%), lower is better", fontsize=TEXT)
    model_legend((normal, shifted), scores, solid="best head", dashed="layer attention", kinds=kinds)
    return normal, shifted


def diversity_by_layer(summaries: Summaries, axes: Iterable[Axes] | None = None) -> tuple[Axes, ...]:
    """Figure 5: the Jensen–Shannon divergence over the heads of each layer; a panel for each attention type."""
    drawn = _by_type(summaries, lambda summary: summary.diversity, axes)
    drawn[0].set_ylabel("JS divergence over heads", fontsize=TEXT)
    drawn[0].set_ylim(bottom=0)
    model_legend(drawn, summaries, kinds=kinds_of(summaries))
    return drawn


def null_rate_by_layer(
    true: Summaries, shuffled: Summaries | None = None, axes: Iterable[Axes] | None = None
) -> tuple[Axes, ...]:
    """Figure 6: the null rate of each layer, the mean over its heads; solid on true pairs, dashed on shuffled ones."""
    drawn = _by_type(true, lambda summary: summary.null_rate.mean(dim=-1), axes)
    if shuffled is not None:
        _by_type(shuffled, lambda summary: summary.null_rate.mean(dim=-1), drawn, DASHED, ", shuffled")
    drawn[0].set_ylabel("null rate", fontsize=TEXT)
    drawn[0].set_ylim(bottom=-0.02)
    if shuffled is None:
        model_legend(drawn, true, kinds=kinds_of(true))
    else:
        model_legend(drawn, true, solid="true pairs", dashed="shuffled pairs", kinds=kinds_of(true))
    return drawn


def sink_by_layer(summaries: Summaries, axes: Iterable[Axes] | None = None) -> tuple[Axes, ...]:
    """The share of attention that rests on </s>, in encoder and cross attention (the decoder has no such key)."""
    drawn = _by_type(summaries, lambda summary: summary.sink_mass.mean(dim=-1), axes, types=("encoder", "cross"))
    drawn[0].set_ylabel("share of attention on </s>", fontsize=TEXT)
    drawn[0].set_ylim(-0.03, 1.03)
    model_legend(drawn, summaries, kinds=kinds_of(summaries))
    return drawn


def _by_type(
    summaries: Summaries,
    values: Callable[[AttentionSummary], Tensor],
    axes: Iterable[Axes] | None,
    line: Any = SOLID,
    suffix: str = "",
    types: Sequence[str] = TYPES,
) -> tuple[Axes, ...]:
    if not summaries:
        raise ValueError("no model was given, so there is nothing to draw")
    drawn = panels(len(types), axes)
    styles = line_styles(summaries, kinds_of(summaries))
    for axes_, type in zip(drawn, types, strict=True):
        for name, by_type in summaries.items():
            draw_layers(axes_, values(by_type[type]).tolist(), styles[name], line, name + suffix)
        finish_panel(axes_, TITLES[type])
    return drawn


def draw_layers(axes: Axes, values: Sequence[float], style: LineStyle, line: Any = SOLID, label: str = "") -> Line2D:
    """One line over the layers, which count from 1."""
    layers = range(1, len(values) + 1)
    look = {"color": style.color, "marker": style.marker, "markersize": style.size, **LINE}
    return axes.plot(layers, values, linestyle=line, label=label, clip_on=False, **look)[0]


def finish_panel(axes: Axes, title: str) -> None:
    """Title, ticks and a faint grid."""
    axes.set_title(title, fontsize=TEXT)
    axes.set_xlabel("layer", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=SMALL)
    axes.grid(axis="y", linewidth=0.5, color="0.88")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def kinds_of(summaries: Summaries) -> dict[str, str]:
    """The kind of each model's cross attention, which decides its colour."""
    return {name: by_type["cross"].kind for name, by_type in summaries.items()}


def model_legend(
    drawn: Sequence[Axes],
    names: Iterable[str],
    solid: str = "",
    dashed: str = "",
    kinds: Mapping[str, str] | None = None,
) -> None:
    """One legend below all panels: a coloured marker for each model, then what solid and dashed mean."""
    handles = [
        Line2D([], [], color=style.color, marker=style.marker, markersize=style.size, label=name, **LINE)
        for name, style in line_styles(names, kinds).items()
    ]
    for text, line in ((solid, SOLID), (dashed, DASHED)):
        if text:
            handles.append(Line2D([], [], color="0.35", linestyle=line, linewidth=1.4, label=text))
    figure = figure_of(drawn[0])
    columns = min(len(handles), 6)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=SMALL, frameon=False)
