"""How well scores of sentence pairs tell clean pairs from noisy ones, by kind of noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rela.plots.style import SMALL, TEXT, figure_of, line_styles, new_figure

Detection = Mapping[str, Mapping[str, float]]
"""AUROC by kind of noise and by what pairs were ranked by: detection["insertion"]["null_rate"]."""
FILLS: dict[str, Any] = {"null_rate": "full", "log_prob": "none", "both": "left"}
NAMES = {"null_rate": "null rate", "log_prob": "log-probability", "both": "both ranks"}


def detection_by_noise(
    detection: Mapping[str, Detection], axes: Axes | None = None, kinds: Mapping[str, str] | None = None
) -> Axes:
    """AUROC of each measure of each model for each kind of noise; ½ is chance, 1 tells every pair apart."""
    if not detection:
        raise ValueError("no model was given, so there is nothing to draw")
    axes = axes or new_figure(height=2.8).subplots()
    noises = list(dict.fromkeys(kind for by_kind in detection.values() for kind in by_kind))
    measures = list(dict.fromkeys(m for by_kind in detection.values() for by in by_kind.values() for m in by))
    styles = line_styles(detection, kinds)
    markers = len(detection) * len(measures)
    for i, (name, by_kind) in enumerate(detection.items()):
        for j, measure in enumerate(measures):
            offset = (i * len(measures) + j + 0.5) / markers * 0.7 - 0.35
            positions = [k + offset for k, kind in enumerate(noises) if measure in by_kind.get(kind, {})]
            values = [by_kind[kind][measure] for kind in noises if measure in by_kind.get(kind, {})]
            axes.plot(
                positions,
                values,
                linestyle="none",
                color=styles[name].color,
                marker=styles[name].marker,
                markersize=6,
                fillstyle=FILLS.get(measure, "full"),
                label=f"{name}, {NAMES.get(measure, measure)}",
            )
    axes.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(noises)), noises, fontsize=SMALL)
    axes.set_xlim(-0.5, len(noises) - 0.5)
    lowest = min([0.5, *(value for by_kind in detection.values() for by in by_kind.values() for value in by.values())])
    axes.set_ylim(lowest - 0.04, 1.03)
    axes.set_ylabel("AUROC", fontsize=TEXT)
    axes.tick_params(labelsize=SMALL)
    axes.grid(axis="y", linewidth=0.5, color="0.88")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [
        Line2D([], [], color=style.color, marker=style.marker, linestyle="none", label=name)
        for name, style in styles.items()
    ]
    handles += [
        Line2D(
            [], [], color="0.35", marker="o", fillstyle=FILLS.get(m, "full"), linestyle="none", label=NAMES.get(m, m)
        )
        for m in measures
    ]
    figure_of(axes).legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 7), fontsize=SMALL, frameon=False
    )
    return axes
