"""`rela data …`: the embedded corpus, and public ones to download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rela.terminal import progress_bars


def data_toy(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    train: Annotated[int, typer.Option(help="Training pairs.")] = 40_000,
    valid: Annotated[int, typer.Option(help="Validation pairs.")] = 500,
    test: Annotated[int, typer.Option(help="Test pairs.")] = 1_000,
    seed: int = 1,
) -> None:
    """Write the embedded English–German corpus as plain text with gold links in Pharaoh format.

    Example: `rela data toy --out data/toy`
    """
    from rela.toy import split, write_corpus

    parts = split(train, valid, test, seed)
    write_corpus(out, dict(zip(("train", "valid", "test"), parts, strict=True)))
    print(f"{out}: {len(parts[0]):,} training, {len(parts[1]):,} validation and {len(parts[2]):,} test pairs")


def data_list() -> None:
    """List the public corpora `rela data get` knows."""
    from rela.data.datasets import list_datasets

    for dataset in list_datasets():
        print(dataset)


def data_get(
    name: Annotated[str, typer.Argument(help="A name from `rela data list`.")],
    out: Annotated[Path, typer.Option(help="Folder to download to.")] = Path("data"),
) -> None:
    """Download a public corpus; a broken download goes on where it stopped.

    Example: `rela data get multi30k-en-de --out data`
    """
    from rela.data.datasets import get_dataset

    with progress_bars() as progress:
        paths = get_dataset(name, out, progress)
    print("\n".join(map(str, paths)))
