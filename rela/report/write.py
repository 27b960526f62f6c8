"""The whole report: `analyse` measures, draws every figure as PNG and SVG, and writes tables and an index.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rela.decoding.translate import Translator
from rela.plots.style import save_figure
from rela.progress import Progress, no_progress
from rela.report.figures import FIGURES
from rela.report.measure import measure
from rela.report.page import write_page
from rela.report.parallel_text import ParallelText
from rela.report.pictures import Selection
from rela.report.plot_command import PlotCommand
from rela.report.results import Report
from rela.report.tables import write_tables


def analyse(
    translators: Mapping[str, Translator],
    text: ParallelText,
    out: str | Path,
    *,
    examples: int = 3,
    word_classes: Callable[[str], str] | None = None,
    settings: Mapping[str, Any] | None = None,
    plot: PlotCommand | None = None,
    progress: Progress | None = None,
) -> Report:
    """The models compared on a text, with every figure and table of section 5.2 and an index.html written to `out`.

    The arguments are those of `rela.report.measure.measure`, and of `write_report`.
    """
    report = measure(
        translators, text, examples=examples, word_classes=word_classes, settings=settings, progress=progress
    )
    write_report(report, out, plot, progress)
    return report


def write_report(
    report: Report, out: str | Path, plot: PlotCommand | None = None, progress: Progress | None = None
) -> None:
    """Write tables, pictures and page of a report that was measured.

    `plot` knows the arguments of the command line, for the commands that draw one picture alone.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tables(report, out)
    draw_report(report, out, progress or no_progress)
    write_page(report, out, plot)


def draw_report(report: Report, out: Path, progress: Progress) -> None:
    """Draw and save every figure that the report has numbers for, one after the other."""
    drawn = 0
    for figure in FIGURES.values():
        for picture in figure.pictures(report) if report.has(figure.needs) else ():
            save_figure(figure.draw(report, picture.selection or Selection()), out / picture.file)
            drawn += 1
            progress("pictures", drawn, None)
