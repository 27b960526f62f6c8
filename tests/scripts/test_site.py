"""The site: navigation and reference complete, its hooks right. `make site` builds it, with every link checked."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from typing import Any

import pytest
import yaml

import rela
from rela.cli import COMMANDS, DATA_COMMANDS
from scripts.site import PICTURES, ROOT, chains, linked_paths, notebook_text, on_post_page, page_text, place, relink

DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, where a tag names a Python function."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def settings() -> dict[str, Any]:
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(nav: Any) -> list[str]:
    """The pages of the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in entries(part)]


def sources() -> list[str]:
    """Pages and notebooks under docs/, as the repository names them."""
    return sorted(path.relative_to(ROOT).as_posix() for end in ("md", "ipynb") for path in DOCS.rglob(f"*.{end}"))


def test_navigation_holds_every_page_once() -> None:
    assert sorted(entries(settings()["nav"])) == sorted(place(path) for path in sources())


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert settings()["theme"]["font"] is False
    assert "offline" not in settings()["plugins"]  # it loads a script for search from the disk
    assert not {"extra_javascript", "extra_css"} & settings().keys()


def test_the_site_has_a_page_for_every_link() -> None:
    pages = [path for path in sources() if path.endswith(".md")]
    pictures = [path.relative_to(ROOT).as_posix() for end in PICTURES for path in DOCS.rglob(f"*{end}")]
    made = {place(path) for path in [*sources(), *pictures, *linked_paths(pages)]}
    seen = 0
    for path in [*pages, *linked_paths(pages)]:
        if path.endswith(".md"):
            for target in page_text(path)[1]:
                assert (ROOT / target).exists(), f"{path} links to {target}, which is not there"
                assert place(target) in made, f"{path} links to {target}, which has no page"
                seen += 1
    assert seen > 300


def test_reference_names_all_public_names_and_they_resolve() -> None:
    named = re.findall(r"^::: (\S+)", "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md")), re.M)
    assert {f"rela.{name}" for name in rela.__all__} <= set(named)
    assert len(named) == len(set(named))
    for name in named:
        module, _, last = name.rpartition(".")
        found = getattr(__import__(module, fromlist=[last]), last, None) or __import__(name, fromlist=[""])
        assert isinstance(found, (dict, tuple)) or inspect.getdoc(found), f"{name} has no docstring"


@pytest.mark.parametrize("name", ["NORMS", "PRESETS", "weights", "norm"])
def test_names_without_a_docstring_of_their_own_have_a_string_below(name: str) -> None:
    """A constant or field has no `__doc__`; the reference shows the string that follows it."""
    code = ast.parse((ROOT / "rela" / "attention" / "kinds.py").read_text(encoding="utf-8"))
    bodies = [node.body for node in ast.walk(code) if isinstance(node, (ast.Module, ast.ClassDef))]
    after = [below for body in bodies for line, below in itertools.pairwise(body) if assigns(line, name)]
    assert [isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in after] == [True]


def assigns(line: ast.stmt, name: str) -> bool:
    """Whether this line gives the name a value or a type."""
    targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def test_every_command_has_its_row() -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    for prefix, table in (("", COMMANDS), ("data ", DATA_COMMANDS)):
        for name, command in table.items():
            about = " ".join((inspect.getdoc(command) or "").split("\n\n")[0].split())
            assert f"| `rela {prefix}{name}` | {about} |" in page


def test_links_out_of_docs_lead_to_pages_of_the_site() -> None:
    text = "See [`attend`](../rela/attention/dispatch.py), [kernels](kernels.md#x), [web](https://a.b/c)."
    changed, seen = relink(text, "docs/attention.md")
    assert changed == (
        "See [`attend`](repository/rela/attention/dispatch.py.md), [kernels](kernels.md#x), [web](https://a.b/c)."
    )
    assert seen == {"rela/attention/dispatch.py", "docs/kernels.md"}


def test_code_is_left_as_it_is() -> None:
    text = "```python\nx = [a](../rela)\n```\n\n    [b](../rela/cli.py)\n"
    assert relink(text, "docs/attention.md") == (text, set())
    assert relink("```diff rela/cli.py\n+x\n```\n", "CONTRIBUTING.md")[0].startswith('```diff title="rela/cli.py"\n')


def test_files_folders_and_pictures_have_their_places() -> None:
    assert place("docs/reference/attention.md") == "reference/attention.md"
    assert place("docs/notebooks/read-a-head.ipynb") == "notebooks/read-a-head.md"
    assert place("CONTRIBUTING.md") == "repository/CONTRIBUTING.md"
    assert place("results/europarl-en-de") == "repository/results/europarl-en-de/README.md"
    assert place("rela/analysis") == "repository/rela/analysis/index.md"
    assert place("results/softmax-to-rela/rela.png") == "repository/results/softmax-to-rela/rela.png"


def test_a_diagram_becomes_chains_of_links() -> None:
    diagram = (
        'flowchart LR\n    text[raw text] --> corpus -- pairs --> ids\n    click corpus "../rela/data/corpus.py"\n'
    )
    assert chains(diagram) == "- raw text → [corpus](../rela/data/corpus.py) → *pairs* → ids"


def test_a_notebook_becomes_a_page() -> None:
    cells = '[{"cell_type": "markdown", "source": ["# T"]}, {"cell_type": "code", "source": ["a = 1\\n", "a"]}]'
    text = notebook_text(f'{{"cells": {cells}}}', "t.ipynb")
    assert text == "# T\n\nA notebook: [t.ipynb](t.ipynb), to be run from top to bottom.\n\n```python\na = 1\na\n```\n"


def test_a_page_that_loads_from_elsewhere_is_refused() -> None:
    here = '<script src="assets/a.js"></script><a href="https://a.b/c">a link</a>'
    assert on_post_page(here, "a page") == here
    for loaded in (
        '<script src="https://a.b/c.js">',
        '<link rel="stylesheet" href="//a.b/c.css">',
        "<img src=http://a>",
    ):
        with pytest.raises(ValueError, match="a page loads"):
            on_post_page(loaded, "a page")
