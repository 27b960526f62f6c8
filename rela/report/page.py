"""The report's index.html: every figure and table of the registry with its sentence, and the command that draws it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rela.files import write_text
from rela.report.figures import FIGURES, REGISTRY, TABLES, Figure, Table, table_rows
from rela.report.plot_command import PlotCommand
from rela.report.results import Report
from rela.report.rows import Row
from rela.report.web_page import command, contents, heading, link, page, paragraph, picture, table

RATE = re.compile(r"(^|_)(aer|aol|aoh)(_|$)")
"""The columns that hold an alignment error rate: fractions in files, per cent on the page."""
FILES = "All tables"

SUMMARY_COLUMNS = {
    "model": "model",
    "cross_sparsity": "sparsity (cross)",
    "cross_diversity": "diversity (cross)",
    "null_rate": "null rate, true pairs",
    "null_rate_shuffled": "null rate, shuffled",
    "sink_mass": "attention on </s>",
    "aer_best_head_normal": "AER best head, normal",
    "aer_best_head_shifted": "AER best head, shifted",
    "aer_best_layer_shifted": "AER best layer, shifted",
}


def write_page(report: Report, out: Path, plot: PlotCommand | None = None) -> None:
    """Write index.html, which shows the pictures that lie beside it."""
    write_text(out / "index.html", page("What attention does", [*summary_parts(report), *page_parts(report, plot)]))


def summary_parts(report: Report) -> Iterator[str]:
    """What was measured, the main measures, and the contents of the page."""
    settings = report.settings
    names = ", ".join(report.models)
    yield paragraph(
        f"{len(report.models)} model{'s' if len(report.models) > 1 else ''} ({names}) on {settings.get('pairs', 0):,} "
        "sentence pairs by forced decoding. Layers and heads count from 1. Every number is in report.json and in the "
        "CSV files below."
    )
    if settings.get("command"):
        yield command(str(settings["command"]))
    rows = [{column: row[column] for column in SUMMARY_COLUMNS if column in row} for row in report.table()]
    yield with_rates(rows, SUMMARY_COLUMNS)
    figures, tables = shown_figures(report), shown_tables(report)
    yield contents([*(figure.title for figure in figures), *(entry.title for entry in tables), FILES])


def shown_figures(report: Report) -> list[Figure]:
    """The figures that the report has pictures of."""
    return [figure for figure in FIGURES.values() if report.has(figure.needs) and list(figure.pictures(report))]


def shown_tables(report: Report) -> list[Table]:
    """The tables that have a heading of their own, and rows."""
    return [entry for entry in REGISTRY if isinstance(entry, Table) and entry.title and table_rows(entry.key, report)]


def page_parts(report: Report, plot: PlotCommand | None) -> Iterator[str]:
    """The page, part by part: figures, tables, files."""
    for figure in shown_figures(report):
        yield from figure_parts(figure, report, plot)
    for entry in shown_tables(report):
        yield from (heading(entry.title), paragraph(entry.sentence), with_rates(table_rows(entry.key, report)))
    yield heading(FILES)
    files = [*(f"{name}.csv" for name in TABLES if table_rows(name, report)), "report.json"]
    yield f"<ul>{''.join(f'<li>{link(name, name)}</li>' for name in files)}</ul>"


def figure_parts(figure: Figure, report: Report, plot: PlotCommand | None) -> Iterator[str]:
    """One figure: title, sentence, pictures with their commands, tables."""
    yield heading(figure.title)
    yield paragraph(figure.sentence)
    for item in figure.pictures(report):
        yield picture(f"{item.file}.png", item.caption, f"{item.file}.svg")
        if plot is not None and figure.plotted:
            yield command(plot.words(figure, item))
    shown = [figure.file] if figure.table_shown else []
    shown += [entry.key for entry in REGISTRY if isinstance(entry, Table) and entry.below == figure.key]
    for name in shown:
        if found := table_rows(name, report):
            yield with_rates(found)


def with_rates(rows: Sequence[Row], names: dict[str, str] | None = None) -> str:
    """Rows as a table, alignment error rates in per cent."""
    rates = [column for row in rows for column in row if RATE.search(column)]
    return table(rows, names, percent=rates)
