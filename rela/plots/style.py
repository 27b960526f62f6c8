"""How every figure looks and is saved: colours that colour-blind readers tell apart, and a marker for each colour."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rela.attention.kinds import PRESETS
from rela.files import replacing

# Okabe and Ito (2008), yellow left out: it is too faint for lines on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
KIND_COLORS = {
    "rela-g": PALETTE[0],
    "softmax": PALETTE[1],
    "sparsemax": PALETTE[2],
    "entmax15": PALETTE[3],
    "relu-rms": PALETTE[4],
    "rela-i": PALETTE[5],
    "relu": PALETTE[6],
}
"""The colour of an attention kind, the same in every figure."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SOLID: Any = "-"
DASHED: Any = (0, (4, 2))
DOTTED: Any = (0, (1, 2))
DOTS_PER_INCH = 200
FORMATS = ("png", "svg")
SAVERS: dict[str, Any] = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""What can be written, and the metadata that keeps the date out of it."""
PAGE_WIDTH = 7.0
"""Inches, the text width of a page: what is drawn at this size is printed at this size."""
TEXT, SMALL, TINY = 9.0, 8.0, 6.0
"""Points."""
Drawing = Axes | Figure
"""A figure, or axes of it: what drawing functions return and `save_figure` takes."""
# Matplotlib's own font knows no Chinese, Japanese or Korean; of these, the ones that are installed are asked next.
_MORE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
    "Arial Unicode MS",
)


@dataclass(frozen=True)
class LineStyle:
    """How one model is drawn in every figure."""

    color: str
    marker: str
    size: float
    """Of the marker: smaller from model to model, so that equal values show one inside the other."""


def line_styles(names: Iterable[str], kinds: Mapping[str, str] | None = None) -> dict[str, LineStyle]:
    """A style for each name: the first of an attention kind has the kind's colour, the others those that are left.

    `kinds` are the kinds of the names; of one that is not there, it is the kind that the name tells. Beyond seven the
    colours repeat with other markers.
    """
    names = list(names)
    colors: dict[str, str] = {}
    for name in names:
        color = KIND_COLORS.get((kinds or {}).get(name) or kind_in(name))
        if color is not None and color not in colors.values():
            colors[name] = color
    free = iter([color for color in PALETTE if color not in colors.values()])
    again = cycle(PALETTE)
    uses: Counter[str] = Counter()
    styles = {}
    for i, name in enumerate(names):
        color = colors.get(name) or next(free, None) or next(again)
        marker = MARKERS[(PALETTE.index(color) + uses[color]) % len(MARKERS)]
        uses[color] += 1
        styles[name] = LineStyle(color, marker, min(4.5 * 1.25 ** (len(names) - 1 - i), 9.0))
    return styles


def kind_in(name: str) -> str:
    """The attention kind that a model's name tells, such as rela-g of "rela-g, base"; empty if it tells none."""
    if name in PRESETS:
        return name
    words = name.lower()
    found = [kind for kind in KIND_COLORS if re.search(rf"(?<![a-z0-9]){kind}(?![a-z0-9])", words)]
    return max(found, key=len, default="")


def new_figure(width: float = PAGE_WIDTH, height: float = 2.6) -> Figure:
    """An empty figure in inches on the Agg canvas; pyplot and its global state are never touched."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(count: int, axes: Iterable[Axes] | None, height: float = 2.6) -> tuple[Axes, ...]:
    """The `count` axes given, or as many new ones side by side with a common scale."""
    if axes is None:
        return tuple(new_figure(height=height).subplots(1, count, sharey=True, squeeze=False)[0])
    given = tuple(axes)
    if len(given) != count:
        raise ValueError(f"{len(given)} axes were given; wanted {count}")
    return given


def figure_of(axes: Axes) -> Figure:
    """The figure that axes belong to, also where a layout nests them."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("these axes belong to no figure")
    return figure


def word_fonts() -> list[str]:
    """Font families for words of any language, as far as this machine has them."""
    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]


def save_figure(drawing: Drawing, path: str | Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure as `path`.png (200 dots an inch) and `path`.svg, whole or not at all; the files.

    The same figure gives the same bytes: no date, and ids from a fixed salt.
    """
    figure = drawing if isinstance(drawing, Figure) else figure_of(drawing)
    targets = [Path(f"{path}.{format}") for format in formats]
    with one_warning_for_glyphs():
        figure.set_dpi(DOTS_PER_INCH)  # text is a little wider or narrower at every resolution
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)  # places everything once; saving would do it again for each format
        figure.set_layout_engine(None)
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
            _save(figure, target)
    return targets


def _save(figure: Figure, target: Path) -> None:
    format = target.suffix[1:]
    if format not in SAVERS:
        raise ValueError(f"cannot write {target.name}; wanted one of {', '.join(SAVERS)}")
    with replacing(target) as partial, matplotlib.rc_context({"svg.hashsalt": "rela"}):
        figure.savefig(partial, format=format, dpi=DOTS_PER_INCH, metadata=SAVERS[format], facecolor="white")


@contextlib.contextmanager
def one_warning_for_glyphs() -> Iterator[None]:
    """Matplotlib warns of each character that no font has; one warning says it better."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = [warning for warning in caught if str(warning.message).startswith("Glyph")]
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if missing:
        warnings.warn(
            f"the installed fonts lack {len({str(warning.message) for warning in missing})} of the characters drawn; "
            "for Chinese, Japanese and Korean install Noto Sans CJK",
            stacklevel=2,
        )
