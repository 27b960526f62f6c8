"""Looking inside a model: measures and pictures of its attention."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rela.commands.arguments import (
    TextOptions,
    load_models,
    measurable_text,
    models_and_texts,
    named_paths,
    noise_files,
    parallel_text,
)
from rela.commands.options import (
    Device,
    GoldFile,
    GoldFlipped,
    GoldOneBased,
    GoldSource,
    GoldTarget,
    GoldTokenised,
    Limit,
    ModelFolders,
    NoiseFiles,
    PictureFile,
    Seed,
    SourceText,
    TargetText,
    Tokenised,
)
from rela.commands.outputs import check_outputs, check_outside
from rela.commands.pictures import picture_files, require_plots, save_as_asked
from rela.terminal import printable, progress_bars

SHOWN = (
    "model",
    "cross_sparsity",
    "null_rate",
    "null_rate_shuffled",
    "aer_best_head_normal",
    "aer_best_head_shifted",
)
"""What `rela analyse` prints of the report's table."""


def analyse(
    models: ModelFolders,
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables and index.html.")],
    gold: GoldFile = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    gold_tokenised: GoldTokenised = False,
    gold_source: GoldSource = None,
    gold_target: GoldTarget = None,
    noise: NoiseFiles = None,
    word_classes: Annotated[
        Path | None, typer.Option(help="Word, tab, class a line: null rate after words of each class.")
    ] = None,
    examples: Annotated[int, typer.Option(help="Sentence pairs to draw.")] = 3,
    limit: Limit = None,
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Compare models: sparsity, alignment, diversity, null attention, noise; figures, tables and a page.

    Example: `rela analyse softmax=runs/a/model rela-g=runs/b/model test.en test.de --gold test.align --out report`
    """
    require_plots()
    from rela.report.plot_command import PlotCommand
    from rela.report.word_classes import load_word_classes
    from rela.report.write import analyse as run

    check_outside([out], named_paths(models).values())
    if os.path.lexists(out) and not out.is_dir():  # refused now, and not after hours of work
        raise ValueError(f"{out} is no folder; wanted one, or a new name")
    options = TextOptions(
        gold, gold_one_based, gold_flipped, gold_source, gold_target, gold_tokenised, noise, limit, seed
    )
    translators = load_models(models, device)
    text = measurable_text(source, target, options, translators.values())
    names = dict(zip(named_paths(models), models, strict=True))
    used = {**vars(options), "device": None if device == "auto" else device}
    settings = {
        "command": command_line(),
        "source": printable(source),
        "target": printable(target),
        "one_based": gold_one_based,
        "flip_gold": gold_flipped,
        "tokenised": gold_tokenised,
        "gold_file": None if gold is None else printable(gold),
    }
    with progress_bars() as progress:
        report = run(
            translators,
            text,
            out,
            examples=examples,
            word_classes=load_word_classes(word_classes) if word_classes else None,
            settings=settings,
            plot=PlotCommand(names, printable(source), printable(target), used),
            progress=progress,
        )
    for row in report.table():
        shown = {name: row[name] for name in row if name in SHOWN}
        print("  ".join(f"{name} {with_unit(name, value)}" for name, value in shown.items()))
    print(out / "index.html")


def plot(
    figure: Annotated[str, typer.Argument(help="sparsity, aer, diversity, null-rate, sink, noise, heads or overview.")],
    models: ModelFolders,
    source: SourceText,
    target: TargetText,
    out: PictureFile,
    gold: GoldFile = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    tokenised: Tokenised = False,
    gold_tokenised: GoldTokenised = False,
    gold_source: GoldSource = None,
    gold_target: GoldTarget = None,
    noise: NoiseFiles = None,
    line: Annotated[int, typer.Option(help="Sentence pair of heads and overview.")] = 1,
    type: Annotated[str, typer.Option(help="encoder, decoder or cross, of heads and overview.")] = "cross",
    layer: Annotated[int | None, typer.Option(help="Layer of heads, from 1; the middle one if left out.")] = None,
    head: Annotated[list[int] | None, typer.Option(help="Head, from 1 (repeatable); all if left out.")] = None,
    limit: Limit = None,
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Draw one figure of the report alone.

    Example: `rela plot heads runs/demo/model test.en test.de --line 7 --layer 3 --out heads`
    """
    require_plots()
    from rela.report.figures import find_figure
    from rela.report.pictures import Selection
    from rela.report.plot import plot_figure
    from rela.report.results import EXAMPLES

    needs = find_figure(figure).needs  # an unknown one is an error before any model is loaded
    noisy = [path for one in noise or () for path in noise_files(one)[1]]
    texts = [source, target, gold, gold_source, gold_target, *noisy]
    check_outputs(picture_files(out), texts, named_paths(models).values())
    options = TextOptions(
        gold, gold_one_based, gold_flipped, gold_source, gold_target, gold_tokenised, noise, limit, seed
    )
    translators = load_models(models, device)
    if EXAMPLES in needs:  # of one line alone
        text = parallel_text(source, target, options, tokenised)
    else:
        text = measurable_text(source, target, options, translators.values(), tokenised)
    selection = Selection(line=line, type=type, layer=layer, heads=tuple(head or ()))
    with progress_bars() as progress:
        drawing = plot_figure(figure, translators, text, selection, progress)
    save_as_asked(drawing, out)


def explore(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS... [SRC TGT]",
            help="Model folders, or NAME=FOLDER to name them; "
            "then, if wanted, two files with the sentence pairs to offer.",
        ),
    ],
    gold: GoldFile = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    tokenised: Tokenised = False,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 chooses a free one.")] = 8765,
    out: Annotated[Path | None, typer.Option(help="Write one HTML file instead of serving.")] = None,
    sentence: Annotated[str | None, typer.Option(help="Sentence that --out shows.")] = None,
    translation: Annotated[str | None, typer.Option(help="Its translation; the models' own if left out.")] = None,
    device: Device = "auto",
) -> None:
    """Show attention in a browser: every head of every layer, word by word, models side by side.

    Example: `rela explore demo/rela-g/model demo/softmax/model`, or for one file:
    `rela explore demo/rela-g/model --out look.html --sentence "The dog is sleeping ."`
    """
    from importlib.util import find_spec

    from rela.explorer.examples import text_examples, toy_examples
    from rela.explorer.export import write_export
    from rela.explorer.views import Views

    folders, texts = models_and_texts(models)
    if gold is not None and texts is None:
        raise ValueError("--gold links the words of a text; give the files SRC TGT behind the models")
    if (out is None) != (sentence is None) or (translation is not None and sentence is None):
        raise ValueError("--out, --sentence and, if wanted, --translation belong together")
    if out is None and not (find_spec("fastapi") and find_spec("uvicorn")):
        raise ImportError("the explorer's server needs fastapi and uvicorn: pip install 'rela-attention[explore]'")
    check_outputs([out], [*(texts or ()), gold], named_paths(folders).values())
    translators = load_models(folders, device)
    if texts is None:
        examples = toy_examples(*next(iter(translators.values())).languages)
    else:
        examples = text_examples(*texts, gold, gold_one_based, gold_flipped)
    views = Views(translators, examples, tokenised)
    pairs = sorted({" to ".join(model["languages"]) for model in views.models})
    if out is not None and len(pairs) > 1:
        raise ValueError(f"the models translate {', '.join(pairs)}; wanted the same languages for --sentence")
    if out is not None and sentence is not None:
        write_export(out, views.start(), [views.view(name, sentence, translation) for name in views.translators])
        print(out)
        return
    from rela.explorer.server import serve

    serve(views, port, lambda line: print(line, flush=True))


def with_unit(name: str, value: object) -> str:
    """A measure as `rela analyse` prints it: error rates in per cent, other shares as fractions."""
    if not isinstance(value, float):
        return str(value)
    return f"{100 * value:.1f} %" if name.startswith("aer_") else f"{value:.3f}"


def command_line() -> str:
    """The command as one would type it again."""
    import shlex

    return printable(shlex.join(["rela", *sys.argv[1:]]))
