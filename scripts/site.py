"""Hooks of mkdocs (mkdocs.yml): what pages link to outside docs/, notebooks and diagrams become pages of the site.

The site works without a network. A page of docs/ may link to code, results and other documents of the repository:
each of these becomes a page under repository/, or a file where it is a picture. `make site` builds it all.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
CODE = re.compile(r"^```.*?^```$|^    [^\n]*$", re.MULTILINE | re.DOTALL)
TITLED = re.compile(r"^```(\w+) ([^\s=]+)$", re.MULTILINE)
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURES = (".png", ".svg", ".jpg")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".jsonl": "json", ".toml": "toml"}
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
LONGEST = 60_000
"""Characters of a file that its page shows; rows of measurements are longer."""


def place(path: str) -> str:
    """Where a file or folder of the repository, such as `rela/cli.py`, is among the sources of the site."""
    if path.endswith(".ipynb"):
        path = path.removesuffix(".ipynb") + ".md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        readme = f"{path}/README.md"
        return f"repository/{readme}" if (ROOT / readme).is_file() else f"repository/{path}/index.md"
    return f"repository/{path}" if path.endswith((".md", *PICTURES)) else f"repository/{path}.md"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Markdown with what is not code changed."""
    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, change(text[end:])])


def relink(text: str, path: str) -> tuple[str, set[str]]:
    """The Markdown of a file of the repository with links as the site needs them, and the paths that it links to."""
    here, seen = posixpath.dirname(place(path)), set()

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        seen.add(found)
        return f"{match[1]}{posixpath.relpath(place(found), here)}{mark}{anchor}{match[3]}"

    text = TITLED.sub(r'```\1 title="\2"', text)  # a block that names its file
    text = DIAGRAM.sub(lambda diagram: chains(diagram[1]), text)
    return outside_code(text, lambda part: LINK.sub(link, part)), seen


def chains(diagram: str) -> str:
    """A Mermaid flow chart as Markdown: each line of it a chain of linked names."""
    labels = dict(re.findall(r"(\w+)\[([^\]]+)\]", diagram))
    targets = dict(re.findall(r'^ *click (\w+) "([^"]+)"', diagram, re.MULTILINE))

    def name(box: str) -> str:
        key = box.partition("[")[0]
        label = labels.get(key, key)
        return f"[{label}]({targets[key]})" if key in targets else label

    rows = []
    for line in diagram.splitlines():
        if "-->" in line:
            parts = re.split(r"\s*(?:--\s+(.*?)\s+)?-->\s*", line.strip())
            arrows = [f" → *{label}* → " if label else " → " for label in parts[1::2]]
            rows.append("".join(name(box) + arrow for box, arrow in zip(parts[::2], [*arrows, ""], strict=True)))
    return "\n".join(f"- {row}" for row in rows)


def notebook_text(notebook: str, name: str) -> str:
    """A notebook as Markdown: its text, its code in blocks, and where the file is."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *rest = parts
    return "\n\n".join([title, f"A notebook: [{name}]({name}), to be run from top to bottom.", *rest]) + "\n"


def folder_text(path: str) -> str:
    """A page that lists the files of a folder."""
    names = sorted(entry.name for entry in (ROOT / path).iterdir() if not entry.name.startswith(("__py", ".")))
    return f"# {path}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"


def file_text(path: str) -> str:
    """A page that shows a text file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    cut = "\n\nThe beginning of a longer file.\n" if len(text) > LONGEST else "\n"
    return f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text[:LONGEST]}\n````{cut}"


def page_text(path: str) -> tuple[str, set[str]]:
    """The Markdown of a path's page, and the paths that it links to."""
    if (ROOT / path).is_dir():
        readme = f"{path}/README.md"
        return page_text(readme) if (ROOT / readme).is_file() else (folder_text(path), set())
    if path.endswith(".md"):
        return relink((ROOT / path).read_text(encoding="utf-8"), path)
    return file_text(path), set()


def linked_paths(pages: list[str]) -> Iterator[str]:
    """Paths outside docs/ that pages link to, and what those link to."""
    seen, waiting = set(pages), list(pages)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            yield path
        if not path.endswith(PICTURES):
            new = {found for found in page_text(path)[1] if not found.endswith(".ipynb")} - seen
            seen |= new
            waiting += sorted(new)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of notebooks and of what is linked outside docs/."""
    from mkdocs.structure.files import File

    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in linked_paths(pages):
        if path.endswith(PICTURES):
            files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, place(path), content=page_text(path)[0]))
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        path = notebook.relative_to(ROOT).as_posix()
        text = notebook_text(notebook.read_text(encoding="utf-8"), notebook.name)
        files.append(File.generated(config, place(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page of docs/ to the pages made above."""
    written = page.file.generated_by is None
    return relink(markdown, f"docs/{page.file.src_uri}")[0] if written else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raise a ValueError for a page that loads a script, a style or a picture from elsewhere."""
    if found := LOADED.search(output):
        raise ValueError(f"{page} loads {found[0]}; wanted files of the site alone")
    return output
