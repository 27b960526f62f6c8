"""The documents are true: examples run, tables are complete, and the walk through CONTRIBUTING.md leads where it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rela
from rela.attention.kinds import DISTRIBUTIONS, RECTIFIERS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[tuple[str, str]]:
    """(what follows the language, the text) of each block of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [(name, body) for found, name, body in BLOCK.findall(text) if found == language]


@pytest.mark.parametrize(
    ("page", "count", "printed"),
    [
        ("docs/attention.md", 7, "softmax weights have no fused kernel"),
        ("docs/thresholds.md", 1, ""),
        ("docs/replace-attention.md", 1, "6 × torch.nn.MultiheadAttention, now rela-g: encoder.layers.0.self_attn"),
    ],
)
def test_the_examples_run(page: str, count: int, printed: str, capsys: pytest.CaptureFixture[str]):
    """All examples of a page, from top to bottom, as one program."""
    torch.manual_seed(0)
    examples = blocks(page, "python")
    assert len(examples) >= count
    exec(compile("\n".join(code for _, code in examples), page, "exec"), {})
    assert printed in capsys.readouterr().out


def test_the_tables_name_everything():
    text = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    for name in (*DISTRIBUTIONS, *RECTIFIERS, *rela.NORMS, *rela.PRESETS):
        assert re.search(rf"`{re.escape(name)}(:\w+)?`", text), f"docs/attention.md does not mention {name}"


def apply(diff: str, path: Path) -> None:
    """Replace the one place that reads as the diff's old lines with its new lines."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+")) + "\n"
    new = "\n".join(line[1:] for line in lines if not line.startswith("-")) + "\n"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"CONTRIBUTING.md shows lines that {path.name} does not hold once:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_walk_through_adding_a_kind(tmp_path: Path):
    """In a copy of the library with the walk's edits made, the new kind exists and passes its tests."""
    for folder in ("rela/attention", "tests/attention"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("rela/__init__.py", "rela/device.py", "tests/__init__.py", "tests/conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    edits = blocks("CONTRIBUTING.md", "diff")
    assert {name for name, _ in edits} == {
        "rela/attention/weights.py", "rela/attention/kinds.py",
        "tests/attention/attention_cases.py", "tests/attention/test_weights.py",
    }  # fmt: skip
    for name, diff in edits:
        apply(diff, tmp_path / name)
    files = ["weights", "reference", "multihead", "null_attention", "copies", "packed"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-k", "silu or known_answers", "-p", "no:cacheprovider",
         *(f"tests/attention/test_{name}.py" for name in files)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed
    assert int(passed[1]) > 20
    where = "import rela; rela.attend; print(rela.__file__, 'rela-g-silu' in rela.PRESETS)"
    seen = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(tmp_path) in seen
    assert seen.strip().endswith("True")
