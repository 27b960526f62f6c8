"""How runs trained: loss and speed by step, read from the log.jsonl a run writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from rela.plots.style import DASHED, SMALL, SOLID, TEXT, figure_of, line_styles, new_figure

Row = Mapping[str, Any]


def log_of(path: str | Path) -> Path:
    """The log that a path means; a folder stands for the log.jsonl in it."""
    return Path(path) / "log.jsonl" if Path(path).is_dir() else Path(path)


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a run's log; a folder stands for the log.jsonl in it."""
    path = log_of(path)
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            rows.append({**row, "event": row["event"], "step": row["step"]})
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: wanted a row of a training log") from None
    if not any(row["event"] == "train" for row in rows):
        raise ValueError(f"{path} holds no training step")
    return rows


def training_curves(logs: Mapping[str, Sequence[Row]]) -> tuple[Axes, Axes]:
    """Negative log-likelihood a token (solid in training, dashed on the validation set) and target tokens a second."""
    losses, speeds = new_figure(height=2.9).subplots(1, 2, width_ratios=(3, 2))
    styles = line_styles(logs)
    for name, rows in logs.items():
        train = [row for row in rows if row["event"] == "train"]
        valid = [row for row in rows if row["event"] == "valid"]
        style = styles[name]
        line = {"color": style.color, "linewidth": 1.4}
        losses.plot([row["step"] for row in train], [row["nll"] for row in train], linestyle=SOLID, label=name, **line)
        marks = {"marker": style.marker, "markersize": style.size, "markeredgecolor": "white", **line}
        steps, values = [row["step"] for row in valid], [row["nll"] for row in valid]
        losses.plot(steps, values, linestyle=DASHED, label=f"{name}, validation", **marks)
        speeds.plot(
            [row["step"] for row in train], [row["tokens_per_second"] / 1000 for row in train], label=name, **line
        )
    for axes, title in (
        (losses, "negative log-likelihood a token (nats)"),
        (speeds, "thousand target tokens a second"),
    ):
        axes.set_title(title, fontsize=TEXT)
        axes.set_xlabel("step", fontsize=TEXT)
        axes.tick_params(labelsize=SMALL)
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    losses.set_yscale("log")
    losses.yaxis.set_major_formatter("{x:.3g}")
    losses.yaxis.set_minor_formatter("{x:.3g}")
    losses.tick_params(which="minor", labelsize=SMALL)
    speeds.set_ylim(bottom=0)
    figure_of(losses).legend(
        *losses.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False
    )
    return losses, speeds
