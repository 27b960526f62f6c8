"""`rela bench NAME`: the scripts under benchmarks/, which live beside the package in a checkout."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

VERBS = {"train": "training", "decode": "decoding"}


def bench(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A script under benchmarks/: attention, train, decode, decoding_cpu, preparation, …")
    ],
) -> None:
    """Run a benchmark of the checkout; further options go to it.

    Example: `rela bench train --kinds softmax,rela-g --out results/training`
    """
    import rela

    if name in ("-h", "--help"):
        typer.echo(context.get_help())
        return

    folder = Path(rela.__file__).parent.parent / "benchmarks"
    known = sorted(path.stem for path in folder.glob("*.py"))
    if not known:
        raise ValueError("benchmarks are part of the repository, not of the installed package; run this in a checkout")
    name = VERBS.get(name, name)
    if name not in known:
        raise ValueError(f"benchmark is {name!r}; wanted one of {', '.join(known)}")
    sys.argv = [str(Path("benchmarks") / f"{name}.py"), *context.args]
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
