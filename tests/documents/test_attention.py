"""The documents are true: examples run, tables are complete, and the recipe of CONTRIBUTING.md leads where it says."""

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


SIGMOID = {
    "silu": "sigmoid",
    "F.silu(scores)": "torch.sigmoid(scores)",
    "b_weight = b_score * tl.sigmoid(b_score)": "b_weight = tl.sigmoid(b_score)",
    "b_sigmoid * (1.0 + b_score * (1.0 - b_sigmoid))": "b_sigmoid * (1.0 - b_sigmoid)",
}
"""What makes the walk through CONTRIBUTING.md one for sigmoid weights, which are ½ at zero."""


def apply(diff: str, path: Path) -> None:
    """Replace the one place that reads as the diff's old lines with its new lines."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+")) + "\n"
    new = "\n".join(line[1:] for line in lines if not line.startswith("-")) + "\n"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"CONTRIBUTING.md shows lines that {path.name} does not hold once:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def copy_with_edits(copy: Path, edits: list[tuple[str, str]]) -> None:
    """A copy of attention, kernels and their tests in which the edits are made."""
    for folder in ("rela/attention", "rela/config", "rela/kernels", "tests/attention", "tests/kernels"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    files = [f"rela/{name}.py" for name in ("__init__", "device", "files", "packing")]
    for file in (*files, "tests/__init__.py", "tests/conftest.py", "tests/interpreter.py", "pyproject.toml"):
        shutil.copy(ROOT / file, copy / file)
    for name, diff in edits:
        apply(diff, copy / name)


def run_python(copy: Path, *arguments: str) -> str:
    """What Python prints there; it may not fail."""
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


def run_tests(copy: Path, names: str, *files: str) -> list[str]:
    """The tests of these names that pass there; none may fail."""
    printed = run_python(copy, "-m", "pytest", "-vv", "-k", names, "-p", "no:cacheprovider", *files)
    return re.findall(r"^(tests/\S+) PASSED", printed, re.MULTILINE)


NOW_WORK = """
import torch
import rela
from rela.config import ModelConfig
q, k, v = torch.randn(3, 2, 4, 5, 8)
rela.attend(q, k, v, kind="silu")
rela.MultiheadAttention(8, 2, kind="rela-g-silu")(v[0], v[0], v[0])
ModelConfig(encoder_attention="rela-g-silu")
"""
"""The three calls that CONTRIBUTING.md says work after its second step."""


def test_the_walk_through_adding_a_kind(tmp_path: Path):
    """In a copy of the library with the walk's edits made, the new kind exists and passes its tests."""
    kind = [edit for edit in blocks("CONTRIBUTING.md", "diff") if not edit[0].startswith("rela/kernels")]
    assert {name for name, _ in kind} == {
        "rela/attention/weights.py",
        "rela/attention/kinds.py",
        "tests/attention/test_weights.py",
    }
    copy_with_edits(tmp_path, kind)
    run_python(tmp_path, "-c", NOW_WORK)
    files = ["weights", "reference", "multihead", "null_attention", "copies", "packed"]
    passed = run_tests(tmp_path, "silu or known_answers", *(f"tests/attention/test_{name}.py" for name in files))
    assert sum("[rela-g-silu" in test for test in passed) > 5, "a preset of the copy, from which kinds under test come"
    assert len(passed) > 20


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_the_walk_through_adding_a_fused_activation(activation: str, tmp_path: Path):
    """The same for the kernels, in Triton's interpreter.

    SiLU has slope ½ at zero, sigmoid is ½ there: a mask that sets scores to zero would leak the gradient of the one
    and the weight of the other.
    """
    pytest.importorskip("triton")
    edits = [edit for edit in blocks("CONTRIBUTING.md", "diff") if edit[0].startswith("rela/")]
    assert len(edits) == 7
    if activation == "sigmoid":
        for old, new in reversed(SIGMOID.items()):
            edits = [(name, diff.replace(old, new)) for name, diff in edits]
    copy_with_edits(tmp_path, edits)
    files = ["attention/test_activations.py", "attention/test_decode.py", "search/test_step_attention.py"]
    files = [
        *(f"tests/kernels/{name}" for name in files),
        "tests/attention/test_dispatch.py",
        "tests/attention/test_weights.py",
    ]
    assert len(run_tests(tmp_path, activation, *files)) > 20
