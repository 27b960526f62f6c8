"""The formatter is switched off only in tables: constants of a module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("rela", "tests", "benchmarks", "experiments", "examples", "scripts")
MARK = "# fmt: " + "skip"


def outside_tables(code: str) -> list[int]:
    """The lines that switch the formatter off and are not the last line of a module's constant."""
    constants = {node.end_lineno for node in ast.parse(code).body if isinstance(node, ast.Assign | ast.AnnAssign)}
    return [i for i, line in enumerate(code.splitlines(), 1) if MARK in line and i not in constants]


def test_only_tables_keep_a_layout_of_their_own():
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in outside_tables(file.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (f"TABLE = {{\n    1:  2,\n}}  {MARK}\n", []),
        (f"def f(a,\n      b):  {MARK}\n    x = [\n        1, 2]  {MARK}\n", [2, 4]),
    ],
)
def test_what_is_a_table(code: str, lines: list[int]):
    assert outside_tables(code) == lines
