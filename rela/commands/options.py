"""Arguments and options that several commands share.

The custom of the command line: models come first, then the texts, `MODEL SRC TGT` or `MODEL... SRC TGT`; what is
written goes to `--out`; `--gold-one-based` and `--gold-flipped` say how a file of gold links is to be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(help="YAML file with sections data, model, train, decode.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a value: --set train.steps=500 (repeatable).")
]
Kind = Annotated[
    str | None, typer.Option("--kind", help="Attention kind of encoder, decoder and cross attention, such as softmax.")
]
ModelFolder = Annotated[
    Path, typer.Argument(help="Model folder (model.safetensors, config.yaml, subwords.model) or folder of its run.")
]
ModelFolders = Annotated[
    list[str], typer.Argument(help="Model folders or folders of runs, or NAME=FOLDER to name them.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
SourceText = Annotated[Path, typer.Argument(metavar="SRC", help="Source text, one sentence a line.")]
TargetText = Annotated[Path, typer.Argument(metavar="TGT", help="Its translation, line by line.")]
OutputFile = Annotated[Path | None, typer.Option("--out", help="Write here instead of stdout.")]
PictureFile = Annotated[
    Path, typer.Option("--out", help="FILE.png, .svg or .pdf; without such an ending both .png and .svg.")
]
GoldFile = Annotated[Path | None, typer.Option("--gold", help="Gold word links: talp, Pharaoh or NAACL.")]
GoldOneBased = Annotated[bool, typer.Option("--gold-one-based", help="The gold links count words from 1.")]
GoldFlipped = Annotated[bool, typer.Option("--gold-flipped", help="The gold links are written target first.")]
Tokenised = Annotated[
    bool, typer.Option("--tokenised", help="SRC and TGT are tokenised, and the model knows raw text.")
]
GoldTokenised = Annotated[
    bool,
    typer.Option("--gold-tokenised", help="The gold links' text is tokenised, and the model knows raw text."),
]
GoldSource = Annotated[
    Path | None, typer.Option("--gold-source", help="Source text of the gold links, if it is another.")
]
GoldTarget = Annotated[Path | None, typer.Option("--gold-target", help="Its translation.")]
NoiseFiles = Annotated[
    list[str] | None,
    typer.Option("--noise", help="KIND=SOURCE,TARGET: noisy pairs to find (repeatable); made if left out."),
]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only this many pairs, the first ones.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the noise that is made and of the choice of examples.")]
On = Annotated[
    str | None,
    typer.Option("--on", help="ray: on workers of a Ray cluster, or of this machine; --out is a folder."),
]
OnForOneFile = Annotated[str | None, typer.Option("--on", help="ray: on workers of a Ray cluster, or of this machine.")]
RayWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="With --on ray: how many workers; one for each GPU, or each CPU if there is none, if left out.",
    ),
]
ShardLines = Annotated[int, typer.Option("--shard-lines", help="With --on ray: lines that a worker takes at a time.")]
