"""Rebuilds docs/results.md from the rows: text between a pair of markers is generated, the rest is prose.

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

DOCUMENT = Path(__file__).parents[1] / "docs" / "results.md"
PLACE = re.compile(r"<!-- (?!end)(.+?) -->\n.*?<!-- end -->", re.DOTALL)
FIGURE_NAMES = ("curves", "figure-3", "figure-4", "figure-5", "figure-6")


def rebuild(document: Path = DOCUMENT, rows: Path = ROWS, grids: Path = GRIDS) -> None:
    """Write the document's tables and its figures (in a folder of its name) from the rows."""
    from experiments.figures import draw_all

    figures = document.with_suffix("")
    drawn = draw_all(load_cells("table1", rows, grids), figures)
    write_text(document, generated(document, drawn, rows, grids))


def generated(document: Path, drawn: Mapping[str, str], rows: Path = ROWS, grids: Path = GRIDS) -> str:
    """The text of the document with every generated place filled anew."""

    @cache
    def load(experiment: str) -> Cells:
        return load_cells(experiment, rows, grids)

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name in TABLES:
            text = TABLES[name](load)
        elif name in FIGURE_NAMES:
            file = f"{document.stem}/{name}.svg"
            text = f"![{drawn[name]}]({file})" if name in drawn else NOT_RUN
        elif name.startswith("grid "):
            text = variations(load, name.removeprefix("grid "))
        else:
            known = ", ".join([*TABLES, *FIGURE_NAMES])
            raise ValueError(f"{document} has a place for {name!r}; wanted one of {known}, or grid NAME")
        return f"<!-- {name} -->\n{text}\n<!-- end -->"

    return PLACE.sub(fill, document.read_text(encoding="utf-8"))
