"""Pictures that commands write."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def require_plots() -> None:
    """Say what is missing before any model is run."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib: pip install 'rela-attention[plots]'")


def stem_and_formats(out: Path) -> tuple[Path, tuple[str, ...]]:
    """What to write where: the format that the name asks for, or PNG and SVG."""
    ending = out.suffix[1:].lower()
    return (out.with_suffix(""), (ending,)) if ending in ("png", "svg", "pdf") else (out, ("png", "svg"))


def picture_files(out: Path) -> list[Path]:
    """The files that `save_as_asked` will write."""
    stem, formats = stem_and_formats(out)
    return [Path(f"{stem}.{format}") for format in formats]


def save_as_asked(axes: Any, out: Path) -> None:
    """Write a figure in the format its name asks for, or as PNG and SVG."""
    from rela.plots.style import save_figure

    for path in save_figure(axes, *stem_and_formats(out)):
        print(path)
