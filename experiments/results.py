"""Rebuilds the pages of results from the rows: text between a pair of markers is generated, the rest is prose.

<!-- table-1 -->
generated
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from experiments.cells import GRIDS, NOT_RUN, Cells, load_cells
from experiments.rows import ROWS
from experiments.tables import TABLES, variations
from rela.files import write_text

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("results.md", "results-attention.md", "results-variations.md")
FIGURES = "results"
"""The folder of the figures, beside the pages."""
PLACE = re.compile(r"<!-- (?!end)(.+?) -->\n.*?<!-- end -->", re.DOTALL)
FIGURE_NAMES = ("curves", "figure-3", "figure-4", "figure-5", "figure-6")


def rebuild(docs: Path = DOCS, rows: Path = ROWS, grids: Path = GRIDS) -> None:
    """Write the tables of the pages, and their figures, from the rows."""
    from experiments.figures import draw_all

    drawn = draw_all(load_cells("table1", rows, grids), docs / FIGURES)
    for name in PAGES:
        write_text(docs / name, generated(docs / name, drawn, rows, grids))


def generated(page: Path, drawn: Mapping[str, str], rows: Path = ROWS, grids: Path = GRIDS) -> str:
    """The text of a page with every generated place filled anew."""

    @cache
    def load(experiment: str) -> Cells:
        return load_cells(experiment, rows, grids)

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name in TABLES:
            text = TABLES[name](load)
        elif name in FIGURE_NAMES:
            text = f"![{drawn[name]}]({FIGURES}/{name}.svg)" if name in drawn else NOT_RUN
        elif name.startswith("grid "):
            text = variations(load, name.removeprefix("grid "))
        else:
            known = ", ".join([*TABLES, *FIGURE_NAMES])
            raise ValueError(f"{page} has a place for {name!r}; wanted one of {known}, or grid NAME")
        return f"<!-- {name} -->\n{text}\n<!-- end -->"

    return PLACE.sub(fill, page.read_text(encoding="utf-8"))
