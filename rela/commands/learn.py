"""From text to a trained model: corpora, preparation, training, averaging, loss curves."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rela.commands.arguments import named_paths
from rela.commands.options import ConfigFile, Kind, Overrides, PictureFile
from rela.commands.outputs import check_only_ours, check_outputs, check_outside
from rela.commands.pictures import picture_files, require_plots, save_as_asked
from rela.terminal import end_interrupted, progress_bars


def data_toy(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    train: Annotated[int, typer.Option(help="Training pairs.")] = 40_000,
    valid: Annotated[int, typer.Option(help="Validation pairs.")] = 500,
    test: Annotated[int, typer.Option(help="Test pairs.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Seed of the sentences that are drawn.")] = 1,
    force: Annotated[bool, typer.Option(help="Replace files of these names that hold other text.")] = False,
) -> None:
    """Write the embedded English–German corpus as plain text with gold links in Pharaoh format.

    Example: `rela data toy --out data/toy`
    """
    from rela.toy import split, write_corpus

    parts = split(train, valid, test, seed)
    write_corpus(out, dict(zip(("train", "valid", "test"), parts, strict=True)), replace=force)
    print(f"{out}: {len(parts[0]):,} training, {len(parts[1]):,} validation and {len(parts[2]):,} test pairs")


def data_list() -> None:
    """List the public corpora `rela data get` knows.

    Example: `rela data list`
    """
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


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the corpus, the models and the report.")] = Path("demo"),
) -> None:
    """Train ReLA-g and softmax on the embedded corpus in a few minutes, and compare them.

    Example: `rela demo`
    """
    from rela.demo import demo as run

    run(out, lambda text: print(text, file=sys.stderr, flush=True))


def prepare(
    config: ConfigFile,
    overrides: Overrides = None,
    force: Annotated[bool, typer.Option(help="Replace what was prepared with other settings.")] = False,
) -> None:
    """Learn the subwords and write the training text as memory-mapped ids.

    Example: `rela prepare configs/demo.yaml`
    """
    from rela.config import load_config
    from rela.data.prepare import prepare as prepare_data

    settings = load_config(config, overrides or ()).data
    with progress_bars() as progress:
        report = prepare_data(settings, progress, force=force)
    print(report.summary())


def train(
    config: ConfigFile,
    overrides: Overrides = None,
    kind: Kind = None,
    quiet: Annotated[bool, typer.Option(help="No progress line.")] = False,
) -> None:
    """Train a model, or go on with one that was interrupted.

    Example: `rela train configs/demo.yaml --kind softmax --set train.directory=runs/softmax`;
    on several processes: `torchrun --nproc-per-node 2 -m rela train …`
    """
    from rela.alignment.validation import choose_on_validation
    from rela.config import load_config
    from rela.training.trainer import train as run

    settings = load_config(config, with_kind(kind, overrides))
    try:
        finished = run(settings, quiet)
        if os.environ.get("RANK", "0") == "0":  # one process of those that torchrun started
            if settings.train.align and (choice := choose_on_validation(finished, settings)) and not quiet:
                print(f"word links: {choice}", file=sys.stderr)
            print(finished)
    except KeyboardInterrupt:
        end_interrupted("interrupted; the same command goes on from the last checkpoint")


def with_kind(kind: str | None, overrides: list[str] | None) -> list[str]:
    """Overrides that choose one kind for all three attentions, before those that were given."""
    chosen = [] if kind is None else [f"model.{type}_attention={kind}" for type in ("encoder", "decoder", "cross")]
    return [*chosen, *(overrides or ())]


def config(file: ConfigFile, overrides: Overrides = None, kind: Kind = None) -> None:
    """Print the settings of an experiment as they will be used: what the file leaves out has its default.

    Example: `rela config configs/demo.yaml --kind softmax`
    """
    from rela.config import config_text, load_config

    print(config_text(load_config(file, with_kind(kind, overrides)).for_training()), end="")


def average(
    folders: Annotated[list[Path], typer.Argument(help="Model folders or checkpoints of one run.")],
    out: Annotated[Path, typer.Option(help="Folder of the averaged model.")],
    half: Annotated[bool, typer.Option(help="Store the weights in half precision: half the size on disk.")] = False,
) -> None:
    """Average the weights of several checkpoints.

    One folder alone is copied, with `--half` at half its size.
    Example: `rela average runs/demo/checkpoints/step-* --out runs/demo/averaged`
    """
    from rela.model.folder import find_model, halved, load_folder, save_folder
    from rela.training.checkpoint import average_weights

    folders = list(map(find_model, folders))
    check_outside([out], folders)
    check_only_ours(out)
    _, config, subwords = load_folder(folders[-1])
    weights = average_weights(folders)
    save_folder(out, config, halved(weights) if half else weights, subwords)
    print(out)


def curves(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs or their log.jsonl, or NAME=FOLDER to name them.")],
    out: PictureFile,
) -> None:
    """Draw how runs trained: loss on training and validation text, and speed, by step.

    Example: `rela curves runs/softmax runs/rela-g --out curves`
    """
    require_plots()
    from rela.plots.curves import log_of, read_log, training_curves

    check_outputs(picture_files(out), [log_of(path) for path in named_paths(runs).values()])
    logs = {name: read_log(path) for name, path in named_paths(runs).items()}
    save_as_asked(training_curves(logs)[0], out)
