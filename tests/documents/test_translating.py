"""What the pages on training and translating name is there, and their Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import typer

import rela
from rela.cli import app
from tests.commands.cases import SOURCES, make_model

DOCS = Path(__file__).parents[2] / "docs"


def documented(name: str, language: str) -> list[str]:
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_documented_options_exist():
    text = (DOCS / "translating.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| option of `rela (\w+)` \|.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert tables == ["translate", "evaluate"]
    for name, table in zip(tables, re.split(r"^\| option of", text, flags=re.MULTILINE)[1:], strict=True):
        rows = re.findall(r"^\| `(--.*?)` \|", table, re.MULTILINE)
        known = {option for parameter in typer.main.get_command(app).commands[name].params for option in parameter.opts}
        assert len(rows) > 3
        assert {word for row in rows for word in row.split() if word.startswith("--")} <= known


def test_the_documented_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "runs" / "demo" / "model")
    (tmp_path / "data" / "toy").mkdir(parents=True)
    (tmp_path / "data" / "toy" / "test.en").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    names: dict = {"rela": rela}
    for block in documented("translating.md", "python"):
        exec(compile(block, "docs/translating.md", "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 1 + (1 + 1 + 3 + 3 + 1 + len(SOURCES))
