"""The arrows between packages point one way, heavy imports stay where they belong, and `import rela` is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import rela

PACKAGE = Path(rela.__file__).parent

# Each may import those before it. The single files after `explorer` put packages together for people.
LAYERS = [
    "errors",
    "interrupts",
    "files",
    "progress",
    "config",
    "device",
    "packing",
    "kernels",
    "attention",
    "model",
    "data",
    "toy",
    "evaluation",
    "decoding",
    "export",
    "hugging_face",
    "training",
    "analysis",
    "alignment",
    "markup",
    "filtering",
    "cluster",
    "plots",
    "report",
    "web",
    "explorer",
    "server",
    "terminal",
    "demo",
    "commands",
    "cli",
    "__main__",
]
KERNEL_USERS = (
    "attention/dispatch.py",
    "attention/centring.py",
    "attention/packed.py",
    "attention/paths.py",
    "attention/plans.py",
    "attention/norms.py",
    "model/layers.py",
    "model/residual.py",
    "training/linear_cross_entropy.py",
    "decoding/engines/gpu_network.py",
    "decoding/engines/gpu_buffers.py",
    "decoding/engines/gpu_search.py",
    "alignment/online.py",
)
# Who may import what is heavy or not everywhere to be had.
HOMES = {
    "matplotlib": ("plots",),
    "triton": ("kernels",),
    "ray": ("cluster",),
    "transformers": ("attention", "hugging_face"),
    "fastapi": ("web", "explorer", "server"),
    "starlette": ("web", "explorer", "server"),
    "uvicorn": ("web", "explorer", "server"),
    "prometheus_client": ("server",),
    "py3langid": ("server",),
}
HEAVY = (
    "matplotlib",
    "transformers",
    "triton",
    "fastapi",
    "starlette",
    "uvicorn",
    "flask",
    "sentencepiece",
    "sacrebleu",
    "entmax",
    "tensorboard",
    "pandas",
    "scipy",
    "typer",
    "rich",
    "yaml",
)


@dataclass(frozen=True)
class Import:
    """One import statement: the file it stands in, the module it names, and whether it waits for a call."""

    path: str
    line: int
    target: str
    lazy: bool

    def __str__(self) -> str:
        return f"rela/{self.path}:{self.line} imports {self.target}"


@cache
def imports() -> list[Import]:
    """Every import of the package; read when a test asks, since every process that shares the tests loads this file."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        lazy = {id(node) for block in ast.walk(tree) if waits(block) for node in ast.walk(block)}
        for node in ast.walk(tree):
            for target in targets(node, path):
                found.append(Import(path, node.lineno, target, id(node) in lazy))
    return found


def waits(block: ast.AST) -> bool:
    """Whether what stands inside is not run by the import itself: a function, or a block for type checkers."""
    if isinstance(block, ast.If):
        return isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
    return isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))


def targets(node: ast.AST, path: str) -> Iterator[str]:
    """The modules a statement imports: by `import`, by `from … import`, or by a string given to import_module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        here = ["rela", *path.split("/")[:-1]]
        base = here[: len(here) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        # `from rela import config` names a module, `from rela.attention import masks` at least a package.
        yield from (f"{module}.{alias.name}" for alias in node.names) if module == "rela" else (module,)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value


def layer_of(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def ours(statement: Import) -> str | None:
    """The layer an import reaches, or None where it leaves the package or takes a public name of `rela` itself."""
    parts = statement.target.split(".")
    if parts[0] != "rela" or len(parts) == 1:
        return None
    return None if parts[1] in rela.__all__ or parts[1] == "__version__" else parts[1]


def test_every_file_has_its_layer():
    unknown = {layer_of(statement.path) for statement in imports()} - {*LAYERS, "__init__"}
    assert not unknown, f"{', '.join(sorted(unknown))}: not in LAYERS; say there what may import it"


def test_packages_import_only_earlier_ones():
    for statement in imports():
        target, source = ours(statement), layer_of(statement.path)
        if target is not None and source != "__init__":
            assert LAYERS.index(target) <= LAYERS.index(source), str(statement)


def test_the_arrows_were_looked_at():
    """Known arrows are among those found, lazy ones included: the test above is not looking at nothing."""
    found = {(statement.path, ours(statement), statement.lazy) for statement in imports()}
    assert ("__init__.py", "attention", True) in found
    assert ("attention/dispatch.py", "kernels", True) in found
    assert ("model/layers.py", "attention", False) in found


def test_relative_and_hidden_imports_are_seen_through():
    def of(code: str, path: str) -> list[str]:
        return [target for node in ast.walk(ast.parse(code)) for target in targets(node, path)]

    assert of("from ..model import layers", "attention/masks.py") == ["rela.model"]
    assert of("from . import masks", "attention/norms.py") == ["rela.attention"]
    assert of("from rela import cli", "config.py") == ["rela.cli"]
    assert of("import_module('rela.cli')", "config.py") == ["rela.cli"]


def test_the_library_s_front_door_imports_nothing_before_a_name_is_used():
    for statement in imports():
        if statement.path == "__init__.py" and not statement.lazy:
            assert ours(statement) is None, str(statement)


def test_only_these_files_import_kernels_and_only_when_called():
    users = [
        statement for statement in imports() if ours(statement) == "kernels" and layer_of(statement.path) != "kernels"
    ]
    for statement in users:
        assert statement.path in KERNEL_USERS, str(statement)
        assert statement.lazy, f"{statement} before any call needs it"
    assert {statement.path for statement in users} == set(KERNEL_USERS)


def test_evaluation_knows_only_strings_and_links():
    for statement in imports():
        if layer_of(statement.path) == "evaluation":
            assert ours(statement) in ("evaluation", None), str(statement)
            assert not statement.target.startswith("torch"), str(statement)


@pytest.mark.parametrize("module", HOMES)
def test_heavy_imports_stay_at_home(module: str):
    for statement in imports():
        if statement.target.split(".")[0] == module:
            assert layer_of(statement.path) in HOMES[module], str(statement)


def test_the_attention_library_brings_nothing_heavy():
    """Beyond what torch itself brings along."""
    code = "import sys, {}; print(*sorted(sys.modules), sep='\\n')"
    loaded = {name: set(python(code.format(name)).split()) for name in ("torch", "rela.attention")}
    extra = {name.split(".")[0] for name in loaded["rela.attention"] - loaded["torch"]}
    assert not extra.intersection(HEAVY)
    assert not {
        name
        for name in loaded["rela.attention"]
        if name.startswith("rela.") and not name.startswith(("rela.attention", "rela.device", "rela.packing"))
    }


@pytest.mark.parametrize(
    ("statement", "allowed"), [("import rela", ()), ("import rela.cli; rela.cli.main(['--help'])", ("typer", "rich"))]
)
def test_torch_is_not_imported_before_it_is_needed(statement: str, allowed: tuple[str, ...]):
    """Nor anything else that takes long: this is why `rela --help` answers at once."""
    code = "import atexit, sys; atexit.register(lambda: print('imported', *sorted(sys.modules))); "
    loaded = python(code + statement).rpartition("imported ")[2].split()
    found = {name.split(".")[0] for name in loaded}
    assert "rela" in found
    assert not found.intersection({"torch", "numpy", *HEAVY} - set(allowed))


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    assert run.returncode == 0, run.stderr
    return run.stdout
