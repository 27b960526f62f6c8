"""The registry: each figure and table once, and complete."""

import re

import typer

from rela.cli import app
from rela.report.figures import FIGURES, PLOTTED, REGISTRY, TABLES, Figure, Table, table_rows
from rela.report.measure import measure
from rela.report.parallel_text import ParallelText
from rela.report.results import PARTS, Report
from tests.tiny_models import tiny_translator, toy_pairs


def test_every_entry_is_complete_and_its_names_are_its_own():
    keys = [entry.key for entry in REGISTRY if isinstance(entry, Figure)]
    files = [entry.key if isinstance(entry, Table) else entry.file for entry in REGISTRY if entry.rows]
    assert len(set(keys)) == len(keys) == len(FIGURES)
    assert len(set(files)) == len(files) == len(TABLES)
    for figure in FIGURES.values():
        assert set(figure.needs) <= set(PARTS)
        assert figure.needs
        assert figure.title
        assert figure.sentence.endswith(".")
        assert (figure.several is None) == bool(figure.file and figure.caption and figure.rows)
    for entry in REGISTRY:
        if isinstance(entry, Table):
            assert set(entry.needs) <= set(PARTS)
            assert bool(entry.title) == bool(entry.sentence)
            assert not entry.below or entry.below in FIGURES


def test_the_help_of_rela_plot_lists_the_figures():
    (figure,) = (p for p in typer.main.get_command(app).commands["plot"].params if p.name == "figure")
    assert tuple(re.findall(r"[a-z-]+", figure.help.replace(" or ", " "))) == PLOTTED


def test_every_entry_is_drawn_or_written_from_what_it_needs_alone():
    models = {"m": tiny_translator()}
    text = ParallelText(toy_pairs(4))
    for name, entry in TABLES.items():
        needs = entry.needs if isinstance(entry, Table) else entry.table_needs or entry.needs
        if "alignment" not in needs:
            assert table_rows(name, measure(models, text, needs)), name
    for figure in FIGURES.values():
        if "alignment" not in figure.needs and figure.several is None:
            report = measure(models, text, figure.needs)
            assert [picture.file for picture in figure.pictures(report)] == [figure.file]
            figure.draw(report, None)


def test_a_report_without_a_part_has_no_rows_of_it():
    empty = Report({}, frozenset())
    for name, entry in TABLES.items():
        if entry.needs:
            assert table_rows(name, empty) == []
