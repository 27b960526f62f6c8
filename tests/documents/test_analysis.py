"""What the pages on analysis and the paper name is there: functions, commands, options and figures."""

import importlib
import re
from pathlib import Path

import pytest
import typer

from rela.attention.kinds import PRESETS
from rela.cli import app
from rela.report.figures import PLOTTED, TABLES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("analysis.md", "alignment.md", "filtering.md", "paper.md")


def text(page):
    return (DOCS / page).read_text(encoding="utf-8")


def names():
    found = {name for page in PAGES for name in re.findall(r"`(rela(?:\.\w+)+)", text(page))}
    return sorted(found)


def find(name):
    """The object behind a dotted name: the longest module, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(name)


@pytest.mark.parametrize("name", names())
def test_every_name_is_there(name):
    assert find(name) is not None


def test_names_were_found():
    assert len(names()) > 30


def commands():
    """Each `rela COMMAND …` of the pages, up to the end of its code; long ones may be continued."""
    joined = "\n".join(text(page) for page in PAGES).replace("\\\n", " ")
    return re.findall(r"(?<![\w/.-])rela ([a-z]+)((?:[^`\n|#])*)", joined)


def test_every_command_and_option_is_there():
    known = typer.main.get_command(app).commands
    seen = set()
    for command, rest in commands():
        if command not in known:
            continue
        seen.add(command)
        options = {option for parameter in known[command].params for option in parameter.opts}
        for option in re.findall(r"(?<=\s)--[a-z-]+", rest):
            assert option in options, f"rela {command} has no {option}"
        if command == "plot" and (figure := rest.split()[0]) != "FIGURE":
            assert figure in PLOTTED
    assert {"analyse", "plot", "align", "aer", "filter", "translate", "train"} <= seen


def test_every_figure_and_table_of_the_paper_has_its_row():
    page = text("paper.md")
    tables, figures = page.split("## Tables")[1].split("## Figures")
    numbers = {int(number) for number in re.findall(r"^\| (\d+)", tables, re.M)}
    assert numbers == set(range(1, 7))
    found = set()
    for first, last in re.findall(r"^\| (\d+)(?:–(\d+))?", figures.split("## The text")[0], re.M):
        found |= set(range(int(first), int(last or first) + 1))
    assert found == set(range(1, 11))
    assert {f"({number})" for number in range(1, 6)} <= set(re.findall(r"^\| (\(\d\))", page, re.M))


def test_files_and_presets_named_are_made():
    for name in re.findall(r"`((?:figure|table)\d\w*)\.csv", text("paper.md")):
        assert name in TABLES
    rows = re.findall(r"^\| 1, rows .*$", text("paper.md"), re.M)
    presets = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}
    assert presets <= set(PRESETS)
    assert len(presets) == 10
