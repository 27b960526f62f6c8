"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(help="YAML file with sections data, model, train, decode.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a value: --set train.steps=500 (repeatable).")
]
ModelFolder = Annotated[Path, typer.Argument(help="Model folder: model.safetensors, config.yaml, subwords.model.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
SourceText = Annotated[Path, typer.Option(help="Source text, one sentence a line.")]
TargetText = Annotated[Path, typer.Option(help="Its translation, line by line.")]
GoldFile = Annotated[Path | None, typer.Option(help="Gold word links: talp, Pharaoh or NAACL.")]
OneBased = Annotated[bool, typer.Option("--one-based", help="The gold links count words from 1.")]
FlipGold = Annotated[bool, typer.Option("--flip-gold", help="The gold links are written target first.")]
Tokenised = Annotated[
    bool, typer.Option("--tokenised", help="The text links belong to is tokenised, and the model knows raw text.")
]
PictureFile = Annotated[Path, typer.Option(help="FILE.png, .svg or .pdf; without such an ending both .png and .svg.")]
