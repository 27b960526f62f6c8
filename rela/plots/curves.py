"""How runs trained: loss and speed by step, read from the log.jsonl a run writes."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from rela.files import read_bytes
from rela.plots.style import DASHED, DOTTED, SMALL, SOLID, TEXT, figure_of, line_styles, new_figure

Row = Mapping[str, Any]


def log_of(path: str | Path) -> Path:
    """The log that a path means; a folder stands for the log.jsonl in it."""
    return Path(path) / "log.jsonl" if Path(path).is_dir() else Path(path)


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a run's log; a folder stands for the log.jsonl in it.

    A line that is no JSON, as a process leaves it that is killed while it writes, is left out with a warning; JSON that
    is no row of a log is an error.
    """
    path = log_of(path)
    rows, torn = [], []
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            torn.append(number)
            continue
        if not is_row(row):
            raise ValueError(f"{path}, line {number}: wanted a row of a training log")
        rows.append(row)
    if not any(row["event"] == "train" for row in rows):
        raise ValueError(f"{path} holds no training step")
    if torn:
        more = f" and {len(torn) - 1} more" if len(torn) > 1 else ""
        warnings.warn(f"{path}: line {torn[0]}{more} is damaged and left out", stacklevel=2)
    return rows


def is_row(row: Any) -> bool:
    """Whether a value is a row of a log, with the numbers that are drawn of its event; a NaN is logged as null."""
    if not isinstance(row, dict) or not isinstance(row.get("event"), str) or not is_number(row.get("step")):
        return False
    drawn = {"train": ("nll", "tokens_per_second"), "valid": ("nll",), "bleu": ("bleu",)}.get(kind_of(row), ())
    return all(name in row and (row[name] is None or is_number(row[name])) for name in drawn)


def kind_of(row: Row) -> str:
    """The event of a row, less the name of its validation set: valid.news is of the kind valid."""
    kind: str = row["event"].partition(".")[0]
    return kind


def by_set(rows: Sequence[Row], kind: str) -> dict[str, list[Row]]:
    """The rows of one kind by the name of their validation set; that of the first is empty."""
    found: dict[str, list[Row]] = {"": []}
    for row in rows:
        if kind_of(row) == kind:
            found.setdefault(row["event"].partition(".")[2], []).append(row)
    return found


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def as_drawn(rows: Sequence[Row], name: str) -> list[float]:
    """A column of rows; what is missing is not drawn."""
    return [math.nan if row[name] is None else row[name] for row in rows]


def training_curves(logs: Mapping[str, Sequence[Row]]) -> tuple[Axes, Axes]:
    """Negative log-likelihood a token (solid in training, dashed on the validation set) and target tokens a second.

    Further validation sets are dotted. Where a run has logged BLEU, that is drawn between them.
    """
    with_bleu = any(kind_of(row) == "bleu" for rows in logs.values() for row in rows)
    panels = new_figure(height=2.9).subplots(1, 3 if with_bleu else 2, width_ratios=(3, 2, 2) if with_bleu else (3, 2))
    losses, speeds = panels[0], panels[-1]
    styles = line_styles(logs)
    for name, rows in logs.items():
        train = [row for row in rows if row["event"] == "train"]
        style = styles[name]
        line = {"color": style.color, "linewidth": 1.4}
        losses.plot([row["step"] for row in train], as_drawn(train, "nll"), linestyle=SOLID, label=name, **line)
        marks = {"marker": style.marker, "markersize": style.size, "markeredgecolor": "white", **line}
        for set_name, valid in by_set(rows, "valid").items():
            dashes = DOTTED if set_name else DASHED
            label = f"{name}, validation" + f" ({set_name})" * bool(set_name)
            losses.plot([row["step"] for row in valid], as_drawn(valid, "nll"), linestyle=dashes, label=label, **marks)
        for set_name, scored in by_set(rows, "bleu").items() if with_bleu else ():
            dashes = DOTTED if set_name else DASHED
            panels[1].plot([row["step"] for row in scored], as_drawn(scored, "bleu"), linestyle=dashes, **marks)
        thousands = [speed / 1000 for speed in as_drawn(train, "tokens_per_second")]
        speeds.plot([row["step"] for row in train], thousands, label=name, **line)
    titles = ["negative log-likelihood a token (nats)", "thousand target tokens a second"]
    for axes, title in zip(panels, [titles[0], "validation BLEU", titles[1]] if with_bleu else titles, strict=True):
        axes.set_title(title, fontsize=TEXT)
        axes.set_xlabel("step", fontsize=TEXT)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if with_bleu else 6, integer=True))
        axes.tick_params(labelsize=SMALL)
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    losses.set_yscale("log")
    losses.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    losses.yaxis.set_major_formatter("{x:.3g}")
    losses.yaxis.set_minor_formatter(NullFormatter())  # labels of all nine steps of a decade overlap
    speeds.set_ylim(bottom=0)
    figure_of(losses).legend(
        *losses.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False
    )
    return losses, speeds
