"""The pages for newcomers do what they say: commands, settings and Python of each, from top to bottom."""

from __future__ import annotations

import gzip
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rela.alignment.choose import default_choice, save_choice
from rela.cli import app
from rela.demo import write_noise
from rela.toy import split, write_corpus
from tests.tiny_models import LAYERS, tiny_translator

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVE = ("explore", "serve")
"""Commands that run until they are interrupted; their own tests run them."""
ELSEWHERE = {"attention.md", "documents.md", "export.md", "replace-attention.md", "thresholds.md", "translating.md"}
"""Pages whose Python other tests run."""


def write_toy(folder: Path, count: int = 20) -> None:
    write_corpus(folder, dict(zip(("train", "valid", "test"), split(count, count, count, 1), strict=True)))


def released_models(folder: Path) -> None:
    """models/ as in a checkout."""
    (folder / "models").symlink_to(ROOT / "models")


def demo(folder: Path) -> None:
    """What `make demo` leaves, with tiny models."""
    write_toy(folder / "demo" / "corpus")
    write_noise(folder / "demo" / "corpus", split(20, 20, 20, 1)[2])
    for kind in ("rela-g", "softmax"):
        tiny_translator(kind).save(folder / "demo" / kind / "model")
        save_choice(folder / "demo" / kind / "model", default_choice(LAYERS))


def gold_set(folder: Path) -> None:
    write_toy(folder)
    tiny_translator().save(folder / "runs" / "rela-g" / "model")


def packed_text(folder: Path) -> None:
    """Text with enough different words for the page's vocabulary."""
    numbers = [" ".join(str(number**3) for number in range(start, start + 20)) for start in range(1, 8000, 20)]
    for side in ("en", "de"):
        with gzip.open(folder / f"train.{side}.gz", "wt", encoding="utf-8") as packed:
            packed.write("\n".join(numbers) + "\n")


PAGES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "index.md": (released_models, ["parameters"]),
    "five-minutes.md": (lambda _: None, ["torch.Size([2, 10, 64]) torch.Size([2, 4, 10, 10])"]),
    "your-corpus.md": (lambda _: None, ["500 training, 50 validation", "BLEU"]),
    "read-a-head.md": (demo, ["AER"]),
    "heads-of-a-model.md": (released_models, ["0.6000, 0.8000, 0.0000, 0.7333", "one back: 0.8"]),
    "faq.md": (lambda _: None, ["tensor([0.]) tensor([1.])"]),
    "analysis.md": (gold_set, []),
    "data.md": (packed_text, ["vocabulary of 16000"]),
}
"""What a page finds in its folder, and what it prints."""


def run_command(line: str) -> str:
    """What a command prints; `echo TEXT |` in front of it is its input."""
    echoed, _, line = line.rpartition(" | ")
    program, *words = shlex.split(line, comments=True)
    assert program == "rela", line
    if words[0] in SERVE:
        return ""
    text = " ".join(shlex.split(echoed)[1:]) + "\n" if echoed else None
    done = CliRunner().invoke(app, words, input=text, catch_exceptions=False)
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.output


LONG = {"analysis.md": pytest.mark.campaign}  # draws every figure


@pytest.mark.parametrize("page", [pytest.param(page, marks=LONG.get(page, ())) for page in PAGES])
def test_the_page_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    prepare, said = PAGES[page]
    prepare(tmp_path)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    names: dict = {}
    printed = []
    for block in BLOCK.finditer(text):
        language, body = block.groups()
        if language == "sh" and page not in ("analysis.md", "data.md"):
            printed += [run_command(line) for line in body.replace("\\\n", " ").splitlines()]
        elif language == "yaml":
            (name,) = re.findall(r"Save this as `([\w.]+)`", text[: block.start()])
            Path(name).write_text(body, encoding="utf-8")
        elif language == "python":
            exec(compile(body, page, "exec"), names)
    everything = "".join([*printed, capsys.readouterr().out])
    for line in said:
        assert line in everything


def test_no_page_has_python_that_nothing_runs():
    pages = {page.name for page in (ROOT / "docs").rglob("*.md") if "```python" in page.read_text(encoding="utf-8")}
    assert pages == {page for page in PAGES if page in pages} | ELSEWHERE
