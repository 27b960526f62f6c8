"""Documents point at what exists: links, headings, paths, and names of functions; their lines are at most 100 wide."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "experiments/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WIDTH = 100
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w/.-])((?:rela|tests|benchmarks|experiments|configs|results)/[\w./-]*\w\.(?:py|md|yaml))\b")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def prose(page: Path) -> list[tuple[int, str]]:
    """(number, line) of the lines outside fenced and indented code."""
    kept, fenced = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            kept.append((number, line))
    return kept


def links(page: Path) -> list[tuple[str, str]]:
    """(text, target) of each link of a page to another file or heading of the repository, boxes of diagrams too."""
    found = LINK.findall("\n".join(line for _, line in prose(page)))
    return [(name, target) for name, target in [*found, *boxes(page)] if "://" not in target]


def boxes(page: Path) -> list[tuple[str, str]]:
    """(box, target) of each box of a Mermaid diagram that is a link."""
    return re.findall(r'^ *click (\w+) "([^"]+)"', page.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The headings of a page as GitHub writes them in an address."""
    headings = [line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#")]
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def definitions(module: Path) -> frozenset[str]:
    """The functions, classes, methods and constants that a Python file defines."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return frozenset(names)


@pages
def test_links_point_to_files_and_headings(page: Path) -> None:
    for text, target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: [{text}]({target}) points to no file"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: [{text}]({target}) points to no heading of {file.name}"


@pages
def test_links_named_after_a_function_point_to_its_file(page: Path) -> None:
    for text, target in links(page):
        if re.fullmatch(r"`\w+`", text) and target.endswith(".py"):
            module = (page.parent / target).resolve()
            assert text.strip("`") in definitions(module), f"{page.name}: {module.name} does not define {text}"


@pages
def test_paths_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # names what was there in the past
        return
    for path in PATH.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


@pages
def test_prose_lines_are_short(page: Path) -> None:
    for number, line in prose(page):
        if not line.startswith("|") and not LINK.search(line):
            assert len(line) <= WIDTH, f"{page.name}:{number} has {len(line)} characters; wanted at most {WIDTH}"


def test_the_changelog_has_a_line_for_each_feature() -> None:
    entries = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ", 1)[1].splitlines()[1:]
    for line in filter(None, entries):
        assert line.startswith(("- ", "### ", "## ")), f"CHANGELOG.md: {line!r} continues an entry"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("rela/analysis/nulls.py", "null_rate"),
        ("rela/kernels/attention/activations.py", "ACTIVATIONS"),
        ("rela/decoding/beam.py", "cannot_improve"),
    ],
)
def test_newcomers_find_a_file_in_two_steps(file: str, name: str) -> None:
    """From the README to a page, from the page to the file."""
    first = {(ROOT / target.partition("#")[0]).resolve() for _, target in links(ROOT / "README.md")}
    seen = [
        page
        for page in first & set(PAGES)
        if ROOT / file in {page.parent.joinpath(t).resolve() for _, t in links(page)}
    ]
    assert seen, f"no page that the README names leads to {file}"
    assert name in definitions(ROOT / file)


def test_every_package_is_among_the_folders() -> None:
    page = ROOT / "docs" / "architecture.md"
    named = {page.parent.joinpath(target).resolve() for _, target in links(page)}
    packages = {path.parent for path in (ROOT / "rela").glob("*/__init__.py")}
    assert packages <= named, packages - named


def test_the_layers_are_those_of_the_test() -> None:
    """docs/architecture.md lists the packages in the order that tests/test_layers.py checks."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Who imports whom")[1]
    listed = re.findall(r"^    (.*)", page.split("\n- ")[0], re.MULTILINE)
    code = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    layers = next(
        ast.literal_eval(node.value) for node in code.body if isinstance(node, ast.Assign) and names(node) == ["LAYERS"]
    )
    assert re.findall(r"\w+", " ".join(listed)) == [layer for layer in layers if layer != "__main__"]


def names(node: ast.Assign) -> list[str]:
    """The names that an assignment gives a value."""
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def test_pages_named_in_code_exist() -> None:
    named = {
        (file, page)
        for folder in ("rela", "benchmarks", "experiments", "tests")
        for file in (ROOT / folder).rglob("*.py")
        for page in re.findall(r"(?<![\w/.])docs/[\w-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert named
    for file, page in named:
        assert (ROOT / page).exists(), f"{file.relative_to(ROOT)} names {page}, which is not there"


def test_something_was_looked_at() -> None:
    """The patterns above find what is known to be there: no test passes because it reads nothing."""
    assert len(PAGES) > 10
    glossary = ROOT / "docs" / "glossary.md"
    assert ("capture", "../rela/analysis/capture.py") in links(ROOT / "docs" / "architecture.md")
    assert ("`null_rate`", "../rela/analysis/nulls.py") in links(glossary)
    assert "null-rate" in anchors(glossary)
    assert "null_rate" in definitions(ROOT / "rela/analysis/nulls.py")
    assert "rela/decoding/beam.py" in PATH.findall(ROOT.joinpath("docs/translating.md").read_text(encoding="utf-8"))
