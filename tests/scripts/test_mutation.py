"""Mutants: every place that can be changed is, and a mutant is what its row says."""

from __future__ import annotations

import ast
import importlib
import sys

import pytest

from scripts import mutation
from scripts.mutation import Mutant, Substitute, changed, mutants_of

SOURCE = '''
"""Text of 1 line."""
LIMIT: int = 3

def clipped(value: int = 0, *, strict: bool = False) -> int:
    if strict and value > LIMIT:
        raise ValueError(f"{value} > {LIMIT + 1}")
    return value if value <= LIMIT else LIMIT - 1
'''
CHANGES = {
    ("constant", "3"): "4",
    ("constant", "0"): "1",
    ("constant", "False"): "True",
    ("condition", "if strict and value > LIMIT:"): "if not (strict and value > LIMIT):",
    ("operator", "strict and value > LIMIT"): "strict or value > LIMIT",
    ("comparison", "value > LIMIT"): "value >= LIMIT",
    ("return", "return value if value <= LIMIT else LIMIT - 1"): "return None",
    ("condition", "value if value <= LIMIT else LIMIT - 1"): "value if not value <= LIMIT else LIMIT - 1",
    ("comparison", "value <= LIMIT"): "value < LIMIT",
    ("operator", "LIMIT - 1"): "LIMIT + 1",
    ("constant", "1"): "2",
}
"""All of them: nothing in a text, an annotation or an error is changed."""


@pytest.fixture
def mutants(tmp_path, monkeypatch) -> list[Mutant]:
    (tmp_path / "clipping.py").write_text(SOURCE)
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    return mutants_of("clipping.py")


def test_every_change_is_made_once(mutants):
    found = {(mutant.change, mutant.before): changed(mutant)[1] for mutant in mutants}
    assert found == CHANGES
    assert len(mutants) == len(CHANGES)


def test_lines_are_those_of_the_source(mutants):
    for mutant in mutants:
        line = SOURCE.splitlines()[mutant.line - 1]
        assert mutant.before.strip(":").removeprefix("if ") in ast.unparse(ast.parse(SOURCE)), line
        assert mutant.before.split(" ")[0] in line


def test_the_mutant_is_imported_in_place_of_the_module(mutants, monkeypatch):
    mutant = next(mutant for mutant in mutants if mutant.before == "value <= LIMIT")
    finder = Substitute(mutant.module, changed(mutant)[0])
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    module = importlib.import_module("clipping")
    monkeypatch.delitem(sys.modules, "clipping")
    assert [module.clipped(value) for value in (2, 3, 4)] == [2, 2, 2]
