"""Commands that the documents show exist, with their options; the README's example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from rela.cli import app
from rela.config import Config, to_dict

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*/README.md")),
]


def code_lines(page: Path) -> list[str]:
    """The lines of a page's code, fenced or indented; a line that ends in a backslash is joined to the next."""
    lines, fenced = [], False
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            lines.append(line.strip())
    return lines


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, through groups such as `rela data`, and the words after it."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, "a group without a command"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def rela_commands() -> list[tuple[str, str]]:
    """(page, what follows `rela`) of each command line in the code of the pages."""
    found = []
    for page in PAGES:
        for line in code_lines(page):
            if match := re.match(r"(?:torchrun .*-m |\S*/)?rela ([a-z].*)", line):
                found.append((page.name, match[1].partition("#")[0]))
    return found


@pytest.mark.parametrize(("page", "line"), rela_commands())
def test_command_and_options_exist(page: str, line: str) -> None:
    command, words = command_of(line.split())
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"{page}: rela {line}"
    for setting in (words[i + 1] for i, word in enumerate(words) if word == "--set"):
        section, field = setting.partition("=")[0].split(".")
        assert field in to_dict(Config())[section], f"{page}: rela {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_is_broken_in_the_middle(page: Path) -> None:
    """A line that begins with an option continues one that ends in a backslash; no backslash is within a line."""
    for line in code_lines(page):
        assert not line.startswith("--"), f"{page.name}: {line} has no command"
        assert "\\ " not in line, f"{page.name}: {line} goes on after a backslash"


def test_commands_were_found() -> None:
    pages = {page for page, _ in rela_commands()}
    assert {"README.md", "training.md", "translating.md", "analysis.md", "explorer.md", "data.md"} <= pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_benchmarks_exist(page: Path) -> None:
    for name in re.findall(r"python -m benchmarks\.([a-z_]+)", page.read_text(encoding="utf-8")):
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), f"{page.name} names benchmarks.{name}"


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.DOTALL)
    assert examples
    exec(compile("\n".join(examples), "README.md", "exec"), {})
    assert "18 × torch.nn.MultiheadAttention, now rela-g" in capsys.readouterr().out
