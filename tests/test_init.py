"""The public names of `rela`: imported when they are first used, and for everyone else as if they were always there."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rela

OWN = {"load", "register_transformers"}
"""The public functions that are not the attention library's: the second registers more than its namesake there."""


@pytest.mark.parametrize("name", rela.__all__)
def test_every_public_name_is_there(name):
    assert getattr(rela, name) is getattr(rela, name)
    assert name in dir(rela)
    assert name in OWN or getattr(rela, name) is getattr(rela.attention, name)


def test_type_checkers_see_the_same_names():
    """The imports under TYPE_CHECKING are the public names, no more and no fewer, and so is rela.attention.__all__."""
    tree = ast.parse(Path(rela.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom) and node.module == "rela.attention"
        for alias in node.names
    }
    assert imported | OWN == set(rela.__all__)
    assert imported | {"register_transformers"} == set(rela.attention.__all__)


FORK = """
import os, sys, torch
for line in sys.stdin:
    if os.fork() == 0:
        assert not any(name.split(".")[0] == "rela" for name in sys.modules)
        exec(line, {})
        sys.stdout.flush()
        os._exit(0)
    if os.wait()[1]:
        print("failed", flush=True)
"""


@pytest.fixture(scope="module")
def started():
    """What one line of code prints in an interpreter that has imported torch and nothing of `rela`: forks of one."""
    with subprocess.Popen([sys.executable, "-c", FORK], stdin=-1, stdout=-1, text=True) as process:

        def ask(code: str) -> str:
            process.stdin.write(code + "\n")
            process.stdin.flush()
            return process.stdout.readline()

        yield ask
        process.stdin.close()


@pytest.mark.parametrize(
    "use",
    [
        "import rela; shown = rela.MultiheadAttention",
        "from rela import MultiheadAttention as shown",
        "from rela import *; shown = MultiheadAttention",
        "import rela; shown = rela.attention.multihead.MultiheadAttention",
        "import rela.attention; shown = rela.attention.MultiheadAttention",
    ],
)
def test_each_way_to_a_name_works_first(use, started):
    answer = started(f"{use}; print(shown.__module__, shown.__name__)")
    assert answer == "rela.attention.multihead MultiheadAttention\n"


def test_a_first_use_inside_a_compiled_function_is_traced_whole(started):
    code = """
import torch, rela
@torch.compile(fullgraph=True, backend="eager")
def run(q):
    return rela.attend(q, q, q)
print(run(torch.ones(1, 2, 3, 4)).shape)
"""
    assert started(f"exec({code!r})") == "torch.Size([1, 2, 3, 4])\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rela' has no attribute 'atend'"):
        _ = rela.atend
    with pytest.raises(ImportError, match="atend"):
        from rela import atend  # noqa: F401


def test_modules_are_pickled_by_a_process_that_imported_nothing_else(started):
    module = rela.MultiheadAttention(8, 2)
    loaded = f"pickle.loads({pickle.dumps(module)!r})"
    code = f"import pickle; module = {loaded}; print(module.in_proj_weight.double().sum().item())"
    assert float(started(code)) == pytest.approx(module.in_proj_weight.double().sum().item(), rel=1e-12)
    assert torch.equal(pickle.loads(pickle.dumps(module)).in_proj_weight, module.in_proj_weight)
