"""Models given to others: converted to and from Hugging Face, and described."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rela.commands.arguments import check_limit, text_pairs
from rela.commands.options import Device, Limit, ModelFolder
from rela.commands.outputs import check_outputs, same


def convert(
    model: Annotated[Path, typer.Argument(help="Model folder of rela, or of transformers (--to rela).")],
    to: Annotated[str, typer.Option(help="hf: for transformers' from_pretrained; rela: back.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
) -> None:
    """Convert a model to a folder that Hugging Face's `from_pretrained` loads, or back.

    Example: `rela convert runs/demo/model --to hf --out demo-hf`
    """
    from rela.hugging_face.convert import from_hugging_face, to_hugging_face

    if to not in ("hf", "rela"):
        raise ValueError(f"--to is {to!r}; wanted hf or rela")
    done = to_hugging_face(model, out) if to == "hf" else from_hugging_face(model, out)
    print(f"wrote {done}")


def card(
    model: ModelFolder,
    source: Annotated[Path | None, typer.Argument(metavar="SRC", help="Test text to measure the model on.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TGT", help="Its translation.")] = None,
    out: Annotated[Path | None, typer.Option(help="The card; README.md in the model folder if left out.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model; its folder's name if left out.")] = None,
    notes: Annotated[Path | None, typer.Option(help="Markdown to put before the limits: licences, uses.")] = None,
    limit: Limit = None,
    device: Device = "auto",
) -> None:
    """Write a model card: data, settings, limits and, with a test text, scores and sparsity.

    Example: `rela card runs/demo/model test.en test.de`
    """
    from rela.decoding.translate import Translator
    from rela.files import read_text, write_text
    from rela.model.folder import find_model
    from rela.report.card import CARD, measure, model_card

    own = find_model(model) / CARD
    path = own if out is None else out
    check_outputs([path], [source, target, notes], [] if same(path, own) else [model])
    if source is not None and target is None:
        raise ValueError(f"{source} has no translation beside it; wanted SRC and TGT")
    check_limit(limit)
    translator = Translator.load(model, device)
    measured = None
    if source is not None and target is not None:
        pairs = text_pairs(source, target, limit, on_empty="keep")
        measured = measure(translator, pairs, f"{source.name}, {target.name}")
    added = "" if notes is None else read_text(notes)
    write_text(path, model_card(translator, name or model.resolve().name, measured, added))
    print(f"wrote {path}")
