"""Pictures that commands write."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def require_plots() -> None:
    """Say what is missing before any model is run."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib: pip install 'rela-attention[plots]'")


def save_as_asked(axes: Any, out: Path) -> None:
    """Write a figure in the format its name asks for, or as PNG and SVG."""
    from rela.plots.style import save_figure

    ending = out.suffix[1:].lower()
    known = ending in ("png", "svg", "pdf")
    for path in save_figure(axes, out.with_suffix("") if known else out, (ending,) if known else ("png", "svg")):
        print(path)
