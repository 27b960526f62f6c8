"""The page on documents: its Python runs and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.commands.cases import make_model

PAGE = Path(__file__).parents[2] / "docs" / "documents.md"


def test_the_documented_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "runs" / "demo" / "model")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    page, text = capsys.readouterr().out.splitlines()
    assert page.startswith("<p>")
    assert page.count("<b>") == page.count("</b>") == page.count("Hund") == 1
    assert text.count("{name}") == text.count("Hund") == 1


def test_every_format_of_the_table_is_known():
    from rela.markup.documents import ENDINGS, FORMATS

    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(FORMATS)
    assert all(f"`{ending}`" in text for ending in ENDINGS if ending != ".markdown")
