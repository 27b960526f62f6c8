"""Every function of the package has annotations, except Triton kernels, whose arguments have no types in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rela

PACKAGE = Path(rela.__file__).parent
COMPILED = ("jit", "builtin", "aggregate")  # decorators of Triton and Gluon


def is_compiled(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list for name in COMPILED)


def host_functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions below a node that run in Python."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and is_compiled(child):
            continue
        if isinstance(child, ast.FunctionDef):
            yield child
        yield from host_functions(child)


def missing(function: ast.FunctionDef) -> list[str]:
    """The arguments without a type, and "return"."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    untyped = [item.arg for item in named if item is not None and item.annotation is None]
    returns = [] if function.returns is not None or function.name == "__init__" else ["return"]
    return [name for name in untyped if name not in ("self", "cls")] + returns


def test_functions_that_run_in_python_have_annotations():
    found = [
        f"{file.relative_to(PACKAGE)}:{function.lineno} {function.name}: {', '.join(names)}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for function in host_functions(ast.parse(file.read_text(encoding="utf-8")))
        if (names := missing(function))
    ]
    assert not found


def test_a_function_without_annotations_would_be_found():
    tree = ast.parse(
        "@triton.jit\ndef kernel(x): ...\ndef host(x, *, y: int): ...\nclass A:\n    def f(self) -> int: ..."
    )
    assert [(function.name, missing(function)) for function in host_functions(tree)] == [
        ("host", ["x", "return"]),
        ("f", []),
    ]
