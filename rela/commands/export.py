"""A trained model for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rela.commands.options import ModelFolder


def export(
    model: ModelFolder,
    to: Annotated[str, typer.Option(help="onnx, torch-export, or aot (compiled by AOTInductor for this CPU).")],
    out: Annotated[Path, typer.Option(help="Folder for encoder, decoder step, subwords and settings.")],
) -> None:
    """Write a model for another runtime, as an encoder and a decoder step with a cache, and check it.

    Example: `rela export runs/demo/model --to onnx --out exported`, then
    `python -m rela.export.onnx_translator exported < test.en`
    """
    from rela.export.write import export_model

    print(export_model(model, to, out))
