"""The report's numbers as files: every table as CSV, and one JSON file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rela.files import write_text
from rela.report.figures import TABLES, Table, table_rows
from rela.report.results import Report
from rela.report.rows import Row


def numbers(report: Report) -> Row:
    """Settings and every table that belongs into report.json."""
    names = [name for name, entry in TABLES.items() if not isinstance(entry, Table) or entry.in_json]
    return {"settings": report.settings, **{name: table_rows(name, report) for name in names}}


def write_tables(report: Report, out: Path) -> None:
    """Write every table that has rows as CSV, and report.json."""
    for name in TABLES:
        if rows := table_rows(name, report):
            write_text(out / f"{name}.csv", csv_text(rows))
    text = json.dumps(without_nan(numbers(report)), ensure_ascii=False, indent=1, default=str, allow_nan=False)
    write_text(out / "report.json", text + "\n")


def without_nan(value: Any) -> Any:
    """The same with null for what is no finite number, which JSON cannot say."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(rows: Sequence[Row]) -> str:
    """Rows as CSV; the columns are those of all rows, in the order in which they appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
