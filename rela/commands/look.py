"""Looking inside a model: measures, pictures, links, and what they say about a corpus."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rela.commands.arguments import TextOptions, load_models, models_and_texts, named_paths, parallel_text, text_pairs
from rela.commands.options import (
    Device,
    GoldFile,
    GoldFlipped,
    GoldOneBased,
    GoldSource,
    GoldTarget,
    Limit,
    ModelFolder,
    ModelFolders,
    NoiseFiles,
    OutputFile,
    PictureFile,
    Seed,
    SourceText,
    TargetText,
    Tokenised,
)
from rela.commands.pictures import require_plots, save_as_asked
from rela.terminal import check_format, output_lines, paired_lines, printable, progress_bars

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
    tokenised: Tokenised = False,
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

    options = TextOptions(gold, gold_one_based, gold_flipped, gold_source, gold_target, tokenised, noise, limit, seed)
    text = parallel_text(source, target, options)
    names = dict(zip(named_paths(models), models, strict=True))
    used = {**vars(options), "device": None if device == "auto" else device}
    settings = {
        "command": command_line(),
        "source": printable(source),
        "target": printable(target),
        "one_based": gold_one_based,
        "flip_gold": gold_flipped,
        "tokenised": tokenised,
        "gold_file": None if gold is None else printable(gold),
    }
    with progress_bars() as progress:
        report = run(
            load_models(models, device),
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
        print("  ".join(f"{name} {v:.3f}" if isinstance(v, float) else f"{name} {v}" for name, v in shown.items()))
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

    find_figure(figure)  # an unknown one is an error before any model is loaded
    options = TextOptions(gold, gold_one_based, gold_flipped, gold_source, gold_target, tokenised, noise, limit, seed)
    text = parallel_text(source, target, options, pairs_tokenised=True)
    selection = Selection(line=line, type=type, layer=layer, heads=tuple(head or ()))
    with progress_bars() as progress:
        drawing = plot_figure(figure, load_models(models, device), text, selection, progress)
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
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 8765,
    out: Annotated[Path | None, typer.Option(help="Write one HTML file instead of serving.")] = None,
    sentence: Annotated[str | None, typer.Option(help="Sentence that --out shows.")] = None,
    translation: Annotated[str | None, typer.Option(help="Its translation; the models' own if left out.")] = None,
    device: Device = "auto",
) -> None:
    """Look into attention in a browser: every head of every layer, word by word, models side by side.

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
    if out is None and find_spec("uvicorn") is None:
        raise ImportError("the explorer's server needs fastapi and uvicorn: pip install 'rela-attention[explore]'")
    examples = toy_examples() if texts is None else text_examples(*texts, gold, gold_one_based, gold_flipped)
    views = Views(load_models(folders, device), examples)
    if out is not None and sentence is not None:
        write_export(out, views.start(), [views.view(name, sentence, translation) for name in views.translators])
        print(out)
        return
    from rela.explorer.server import serve

    serve(views, port, lambda line: print(line, flush=True))


def align(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: OutputFile = None,
    reverse: Annotated[Path | None, typer.Option(help="Model folder of the other direction.")] = None,
    symmetrise: Annotated[
        str | None,
        typer.Option(help="With --reverse: intersection, grow-diag, grow-diag-final (if left out) or union."),
    ] = None,
    dev_source: Annotated[Path | None, typer.Option(help="Text to choose layer and head on.")] = None,
    dev_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    dev_gold: Annotated[Path | None, typer.Option(help="Its gold links; the choice stays in the model folder.")] = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    tokenised: Tokenised = False,
    layer: Annotated[int | None, typer.Option(help="Decoder layer, from 1, instead of the remembered choice.")] = None,
    head: Annotated[int | None, typer.Option(help="Head of that layer, from 1; its mean if left out.")] = None,
    shifted: Annotated[
        bool | None,
        typer.Option(help="Of --layer: read the step after a word (if left out), or the step that writes it."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Print word links in Pharaoh format, read from cross attention.

    Example: `rela align runs/en-de/model test.en test.de --reverse runs/de-en/model > test.align`
    """
    from rela.alignment.choose import Aligner, AlignmentChoice, choose, save_choice
    from rela.alignment.corpus import align_corpus, choose_backward
    from rela.evaluation.alignment import pharaoh, read_links
    from rela.evaluation.symmetrise import SYMMETRISATIONS

    method = symmetrise or "grow-diag-final"
    if method not in SYMMETRISATIONS:
        raise ValueError(f"symmetrise is {method!r}; wanted one of {', '.join(SYMMETRISATIONS)}")
    if symmetrise is not None and reverse is None:
        raise ValueError("--symmetrise makes one of two directions; give --reverse too")
    dev = (dev_source, dev_target, dev_gold)
    if any(dev) and not all(dev):
        raise ValueError("--dev-source, --dev-target and --dev-gold belong together")
    if head is not None and layer is None:
        raise ValueError("--head says which head of a layer; give --layer too")
    if shifted is not None and layer is None:
        raise ValueError("--shifted and --no-shifted say how to read a layer; give --layer too")
    choice = None
    if layer is not None:
        choice = AlignmentChoice(layer - 1, None if head is None else head - 1, shifted is not False)

    def make_aligner(folder: Path, chooser: Any) -> Aligner:
        translator = load_models([str(folder)], device).popitem()[1]
        if dev_source and dev_target and dev_gold:
            links = read_links(dev_gold, gold_one_based, gold_flipped)
            found = chooser(translator, text_pairs(dev_source, dev_target, None), links, tokenised)
            save_choice(folder, found)
            print(f"{folder}: {describe_choice(found)}", file=sys.stderr)
        check_choice(choice, translator)
        return Aligner(translator, choice, tokenised)

    forward = make_aligner(model, choose)
    backward = None if reverse is None else make_aligner(reverse, choose_backward)
    with output_lines(out) as write:
        for links in align_corpus(forward, paired_lines(source, target), backward, method):
            write(pharaoh(links))


def describe_choice(found: Any) -> str:
    """A choice that was made on a dev set, as it is printed."""
    where = "its mean" if found.head is None else f"head {found.head + 1}"
    read = "shifted" if found.shifted else "normal"
    return f"layer {found.layer + 1}, {where}, {read} attention, AER {100 * (found.aer or 0):.2f} on the dev set"


def check_choice(choice: Any, translator: Any) -> None:
    """Refuse a layer or head the model does not have."""
    shape = translator.config.model
    if choice is not None and not 0 <= choice.layer < shape.decoder_layers:
        raise ValueError(f"layer is {choice.layer + 1}; the model has layers 1 to {shape.decoder_layers}")
    if choice is not None and choice.head is not None and not 0 <= choice.head < shape.heads:
        raise ValueError(f"head is {choice.head + 1}; the model has heads 1 to {shape.heads}")


def aer(
    hypothesis: Annotated[Path, typer.Argument(help="Links to judge: Pharaoh, talp or NAACL.")],
    gold: Annotated[Path, typer.Argument(help="Gold links, sure and possible: talp, Pharaoh or NAACL.")],
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    hypothesis_one_based: Annotated[
        bool, typer.Option("--hypothesis-one-based", help="The hypothesis counts words from 1.")
    ] = False,
    hypothesis_flipped: Annotated[
        bool, typer.Option("--hypothesis-flipped", help="The hypothesis is written target first.")
    ] = False,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Alignment error rate, precision and recall of word links.

    Example: `rela aer test.align gold.talp --gold-one-based`
    """
    from dataclasses import asdict

    from rela.evaluation.alignment import alignment_error_rate, read_hypotheses, read_links

    check_format(format, "text", "json")
    result = alignment_error_rate(
        read_hypotheses(hypothesis, hypothesis_one_based, hypothesis_flipped),
        read_links(gold, gold_one_based, gold_flipped),
    )
    print(json.dumps(asdict(result)) if format == "json" else result)


def filter_pairs(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="Scores as TSV; scores on their way are kept in OUT.parts.")],
    by: Annotated[str, typer.Option(help="Rank by null-rate, log-prob or both.")] = "null-rate",
    keep: Annotated[float | None, typer.Option(help="Share of the pairs to keep, such as 0.8.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Worst score to keep.")] = None,
    kept_source: Annotated[Path | None, typer.Option(help="Where the kept pairs go; beside OUT if left out.")] = None,
    kept_target: Annotated[Path | None, typer.Option(help="And their other side.")] = None,
    ranked: Annotated[bool, typer.Option(help="Write the TSV best first.")] = False,
    text: Annotated[bool, typer.Option(help="Put both sentences into the TSV.")] = False,
    page: Annotated[bool, typer.Option(help="Also OUT.html, a sample of the best and worst pairs.")] = False,
    sample: Annotated[int, typer.Option(help="Pairs of each sort on that page.")] = 50,
    seed: Annotated[int, typer.Option(help="Of that sample.")] = 1,
    device: Device = "auto",
) -> None:
    """Rank a noisy corpus by null rate and keep the best; an interrupted run goes on where it stopped.

    Example: `rela filter runs/demo/model train.en train.de --keep 0.8 --page --out scores.tsv`;
    on several processes: `torchrun --nproc-per-node 4 -m rela filter …`
    """
    from rela.decoding.translate import Translator
    from rela.filtering.filter import filter_corpus
    from rela.filtering.outputs import check_columns, check_outputs, kept_paths, parts_folder, summary_path
    from rela.filtering.ranking import Criterion
    from rela.filtering.score_corpus import score_corpus
    from rela.report.filter_page import write_filter_page
    from rela.training.processes import join_processes

    criterion = Criterion(by, keep, threshold)
    check_columns(ranked, text)
    if (kept_source is None) != (kept_target is None):
        raise ValueError("--kept-source and --kept-target belong together")
    if kept_source is not None and not criterion.keeps:
        raise ValueError("--kept-source says where kept pairs go; give --keep or --threshold too")
    if sample < 0:
        raise ValueError(f"sample is {sample}; wanted at least 0")
    files = (kept_source, kept_target) if kept_source and kept_target else None
    outputs = [out, summary_path(out)]
    outputs += kept_paths(out, files) if criterion.keeps else []
    outputs += [out.with_suffix(".html")] if page else []
    check_outputs(source, target, outputs)
    with join_processes(device) as processes, progress_bars() as progress:
        translator = Translator.load(model, str(processes.device))
        store = score_corpus(
            translator,
            source,
            target,
            parts_folder(out),
            rank=processes.rank,
            world=processes.world,
            progress=progress if processes.first else None,
        )
        processes.wait()
    if not processes.first:
        return
    summary = filter_corpus(store, source, target, out, criterion, ranked=ranked, text=text, kept_files=files)
    if page:
        write_filter_page(store, source, target, out.with_suffix(".html"), summary, sample, seed)
    print(summary)


def command_line() -> str:
    """The command as one would type it again."""
    import shlex

    return printable(shlex.join(["rela", *sys.argv[1:]]))
