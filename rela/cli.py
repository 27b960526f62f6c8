"""The command line: one table of subcommands, thin over the library.

Heavy imports happen inside the commands, so that `rela --help` answers at once.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from rela.terminal import Remembered, output_lines, progress_bars

try:
    import typer
except ImportError:
    print(
        "rela: error: the command line needs the toolkit's packages: pip install 'rela-attention[mt]'", file=sys.stderr
    )
    raise SystemExit(2) from None

app = typer.Typer(
    name="rela",
    help="Rectified linear attention (ReLA): train, translate, measure and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Corpora: the embedded one, and public ones to download.", no_args_is_help=True)
app.add_typer(data_app, name="data")

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


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what a user can put right is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_: print(f"rela: warning: {one_line(message)}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # text is UTF-8 here, whatever the locale says
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that went away is dealt with
    except (ValueError, ImportError, OSError, RuntimeError) as error:
        if os.environ.get("RELA_TRACEBACK"):
            raise
        if isinstance(error, BrokenPipeError):  # the reader of our output went away: `rela translate … | head`
            flush_or_abandon()
            raise SystemExit(1) from None
        if type(error).__name__ == "Abort":  # what older releases of typer make of Ctrl-C
            fail("interrupted", code=130)
        if isinstance(error, OSError):  # which may be a full disk behind stdout
            flush_or_abandon()
        fail(describe(error))
    except KeyboardInterrupt:
        fail("interrupted", code=130)
    except Exception as error:
        if hasattr(error, "format_message"):  # the command line itself was wrong
            if type(error).__name__ == "NoArgsIsHelpError":
                print(error.format_message())
                raise SystemExit(2) from None
            fail(one_line(error.format_message()))
        raise
    if code == 130:  # what typer makes of Ctrl-C
        fail("interrupted", code=130)
    raise SystemExit(code if isinstance(code, int) else 0)


def fail(message: str, code: int = 2) -> None:
    print(f"rela: error: {message}", file=sys.stderr)
    raise SystemExit(code) from None


def flush_or_abandon() -> None:
    """Write what is left to say; what cannot be written is thrown away, or Python would try once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return one_line(error) or type(error).__name__


def one_line(message: object) -> str:
    return " ".join(str(message).split())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the corpus, the models and the report.")] = Path("demo"),
) -> None:
    """Train ReLA-g and softmax on the embedded corpus in a few minutes, and compare them.

    Example: `rela demo`
    """
    from rela.demo import demo as run

    run(out, lambda text: print(text, file=sys.stderr, flush=True))


@data_app.command("toy")
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
    from rela.data.toy import split, write_corpus

    parts = split(train, valid, test, seed)
    write_corpus(out, dict(zip(("train", "valid", "test"), parts, strict=True)))
    print(f"{out}: {len(parts[0]):,} training, {len(parts[1]):,} validation and {len(parts[2]):,} test pairs")


@data_app.command("list")
def data_list() -> None:
    """List the public corpora `rela data get` knows."""
    from rela.data.datasets import list_datasets

    for dataset in list_datasets():
        print(dataset)


@data_app.command("get")
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


@app.command()
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
    from rela.data.subwords import Subwords

    settings = load_config(config, overrides or ()).data
    subwords = Subwords.load(Path(settings.root) / settings.subwords) if settings.subwords else None
    with progress_bars() as progress:
        report = prepare_data(settings, progress, force=force, subwords=subwords)
    print(report.summary())


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    quiet: Annotated[bool, typer.Option(help="No progress line.")] = False,
) -> None:
    """Train a model, or go on with one that was interrupted.

    Example: `rela train configs/demo.yaml --set train.steps=500`; on several processes: `torchrun --nproc-per-node 2 -m rela train …`
    """
    from rela.config import load_config
    from rela.training.trainer import train as run

    try:
        finished = run(load_config(config, overrides or ()), quiet)
    except KeyboardInterrupt:
        fail("interrupted; the same command goes on from the last checkpoint", code=130)
    if os.environ.get("RANK", "0") == "0":  # one process of those that torchrun started
        print(finished)


@app.command()
def average(
    folders: Annotated[list[Path], typer.Argument(help="Model folders or checkpoints of one run.")],
    out: Annotated[Path, typer.Option(help="Folder of the averaged model.")],
) -> None:
    """Average the weights of several checkpoints.

    Example: `rela average runs/demo/checkpoints/step-* --out runs/demo/averaged`
    """
    from rela.model.folder import load_folder, save_folder
    from rela.training.checkpoint import average_weights

    _, config, subwords = load_folder(folders[-1])
    save_folder(out, config, average_weights(folders), subwords)
    print(out)


@app.command()
def translate(
    model: ModelFolder,
    source: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; stdin if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="α of ((5 + length) / 6)^α.")] = None,
    nbest: Annotated[int, typer.Option(help="Translations a sentence.")] = 1,
    sampling: Annotated[bool, typer.Option(help="Draw translations instead of searching the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Of sampling.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling.")] = None,
    max_length_ratio: Annotated[float | None, typer.Option(help="Longest output, in source lengths.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Source tokens decoded together.")] = None,
    window: Annotated[
        int | None, typer.Option(help="Lines read before the first is answered; 1 in a dialogue.")
    ] = None,
    scores: Annotated[bool, typer.Option(help="Put score and tab before each translation.")] = False,
    alignments: Annotated[bool, typer.Option(help="Put tab and Pharaoh links behind each translation.")] = False,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
) -> None:
    """Translate text, line by line, in order.

    Example: `echo "The dog sleeps ." | rela translate runs/demo/model`
    """
    from rela.decoding.translate import WINDOW, Translator

    check_format(format, "text", "jsonl")
    translator = Translator.load(model, device)
    given = {"beam": beam, "length_penalty": length_penalty, "sampling": sampling or None, "temperature": temperature,
             "seed": seed, "max_length_ratio": max_length_ratio, "batch_tokens": batch_tokens}  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    if window is None:
        window = 1 if source is None and sys.stdin.isatty() else WINDOW
    with output_lines(out) as write:
        sources = Remembered(input_lines(source))
        for number, group in enumerate(translator.translate_stream(sources, nbest, window, **options)):
            line = sources.take()
            links = align_all(translator, line, [item.text for item in group]) if alignments else [None] * len(group)
            for rank, (item, link) in enumerate(zip(group, links, strict=True)):
                write(translation_line(number, rank, line, item, link, nbest, scores, format))


def translation_line(
    number: int, rank: int, source: str, item: Any, links: str | None, nbest: int, scores: bool, format: str
) -> str:
    """One translation as it is printed."""
    if format == "jsonl":
        row = {
            "line": number,
            "rank": rank,
            "source": source,
            "translation": item.text,
            "score": item.score,
            "log_prob": item.log_prob,
        }
        return json.dumps(row if links is None else {**row, "alignment": links}, ensure_ascii=False)
    fields = [str(number)] if nbest > 1 else []
    fields += [f"{item.score:.6f}"] if scores else []
    return "\t".join([*fields, item.text] + ([] if links is None else [links]))


def align_all(translator: Any, source: str, targets: list[str]) -> list[str]:
    """Pharaoh links of a source with each of its translations."""
    from rela.analysis.align import Aligner
    from rela.decoding.translate import PairTooLong
    from rela.evaluation.alignment import pharaoh

    aligner = Aligner(translator)
    try:
        return [pharaoh(links) for links in aligner.align([source] * len(targets), targets)]
    except PairTooLong as error:  # its translation was cut with a warning, and is worth printing
        warnings.warn(f"no alignment: {error}", stacklevel=2)
        return [""] * len(targets)


@app.command()
def score(
    model: ModelFolder,
    source: Annotated[Path, typer.Argument(help="Source text.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line by line.")],
    tokens: Annotated[bool, typer.Option(help="Also the log-probability of each subword.")] = False,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
) -> None:
    """Print the log-probability a model gives to each translation.

    Example: `rela score runs/demo/model test.en test.de --tokens`
    """
    from rela.decoding.translate import WINDOW, Translator

    check_format(format, "text", "jsonl")
    translator = Translator.load(model, device)
    for chunk in chunked(paired_lines(source, target), WINDOW):
        for item in translator.score(*map(list, zip(*chunk, strict=True))):
            if format == "jsonl":
                print(
                    json.dumps(
                        {"log_prob": item.log_prob, "pieces": item.pieces, "log_probs": item.log_probs},
                        ensure_ascii=False,
                    )
                )
            else:
                parts = " ".join(
                    f"{piece}:{value:.4f}" for piece, value in zip(item.pieces, item.log_probs, strict=True)
                )
                print(f"{item.log_prob:.6f}" + (f"\t{parts}" if tokens else ""))


@app.command()
def evaluate(
    hypothesis: Annotated[Path, typer.Argument(help="Translations.")],
    reference: Annotated[Path, typer.Argument(help="References, line by line.")],
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """BLEU and chrF with their signatures, and BLEU as multi-bleu.perl computes it on the text as it is.

    Example: `rela evaluate output.de test.de`
    """
    from rela.data.corpus import read_lines
    from rela.evaluation.scores import bleu, chrf, tokenised_bleu

    check_format(format, "text", "json")
    hypotheses, references = list(read_lines(hypothesis)), list(read_lines(reference))
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{hypothesis} has {len(hypotheses)} lines and {reference} {len(references)}; wanted equally many"
        )
    results = [measure(hypotheses, references) for measure in (bleu, chrf, tokenised_bleu)]
    if format == "json":
        print(json.dumps([vars(result) for result in results]))
    else:
        print("\n".join(map(str, results)))


@app.command()
def info(model: ModelFolder) -> None:
    """Print what a model is made of: attention kinds and parameters by part.

    Example: `rela info runs/demo/model`
    """
    from rela.model.folder import load_folder

    transformer, config, _ = load_folder(model)
    shape = config.model
    print(f"{shape.encoder_layers}+{shape.decoder_layers} layers, width {shape.width}, {shape.heads} heads, "
          f"feed-forward {shape.feed_forward}, vocabulary {shape.vocabulary_size}, "
          f"{'pre' if shape.norm_first else 'post'}-norm, tied embeddings: {shape.tied_embeddings}")  # fmt: skip
    print(
        f"attention: encoder {shape.encoder_attention}, decoder {shape.decoder_attention}, cross {shape.cross_attention}"
    )
    counts = transformer.parameter_counts()
    for name, count in counts.items():
        print(f"{name:<18} {count:>12,}")
    print(f"{'parameters':<18} {sum(counts.values()):>12,}")


@app.command()
def analyse(
    models: Annotated[list[str], typer.Argument(help="Model folders, or NAME=FOLDER to name them.")],
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables and index.html.")],
    gold: GoldFile = None,
    one_based: OneBased = False,
    gold_source: Annotated[Path | None, typer.Option(help="Source text of the gold links, if it is another.")] = None,
    gold_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    noise: Annotated[
        list[str] | None, typer.Option(help="KIND=SOURCE,TARGET: noisy pairs to find (repeatable); made if left out.")
    ] = None,
    word_classes: Annotated[
        Path | None, typer.Option(help="Word, tab, class a line: null rate after words of each class.")
    ] = None,
    examples: Annotated[int, typer.Option(help="Sentence pairs to draw.")] = 3,
    limit: Annotated[int | None, typer.Option(help="Use the first so many pairs.")] = None,
    seed: int = 1,
    device: Device = "auto",
) -> None:
    """Compare models: sparsity, alignment, diversity, null attention, noise; figures, tables and a page.

    Example: `rela analyse softmax=runs/a/model rela-g=runs/b/model --source test.en --target test.de --gold test.align --out report`
    """
    require_plots()
    from rela.analysis.report import load_word_classes
    from rela.evaluation.alignment import read_links
    from rela.plots.report import analyse as run

    pairs = text_pairs(source, target, limit)
    links = None if gold is None else read_links(gold, one_based)
    if (gold_source is None) != (gold_target is None) or (gold_source is not None and gold is None):
        raise ValueError("--gold-source, --gold-target and --gold belong together")
    gold_pairs = text_pairs(gold_source, gold_target, None) if gold_source and gold_target else None
    if links is not None and gold_pairs is None:
        links = links[:limit]
    noisy = {kind: text_pairs(*files, limit) for kind, files in map(noise_files, noise)} if noise else None
    settings = {"command": command_line(), "source": str(source), "target": str(target), "one_based": one_based,
                "gold_file": None if gold is None else str(gold)}  # fmt: skip
    with progress_bars() as progress:
        report = run(
            load_models(models, device), pairs, links, out, seed=seed, examples=examples, noise=noisy,
            gold_pairs=gold_pairs, word_classes=load_word_classes(word_classes) if word_classes else None,
            settings=settings, progress=progress,
        )  # fmt: skip
    for row in report.table():
        print("  ".join(f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
                        if name in ("model", "cross_sparsity", "null_rate", "null_rate_shuffled", "aer_best_head_shifted")))  # fmt: skip
    print(out / "index.html")


@app.command()
def plot(
    figure: Annotated[str, typer.Argument(help="sparsity, aer, diversity, null-rate, sink, noise, heads or overview.")],
    models: Annotated[list[str], typer.Argument(help="Model folders, or NAME=FOLDER to name them.")],
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="FILE.png, .svg or .pdf; without such an ending both .png and .svg.")],
    gold: GoldFile = None,
    one_based: OneBased = False,
    line: Annotated[int, typer.Option(help="Sentence pair of heads and overview.")] = 1,
    type: Annotated[str, typer.Option(help="encoder, decoder or cross, of heads and overview.")] = "cross",
    layer: Annotated[int | None, typer.Option(help="Layer of heads, from 1; the middle one if left out.")] = None,
    head: Annotated[list[int] | None, typer.Option(help="Head, from 1 (repeatable); all if left out.")] = None,
    limit: Annotated[int | None, typer.Option(help="Use the first so many pairs.")] = None,
    seed: int = 1,
    device: Device = "auto",
) -> None:
    """Draw one figure of the report alone.

    Example: `rela plot heads runs/demo/model --source test.en --target test.de --line 7 --layer 3 --out heads`
    """
    require_plots()
    from rela.evaluation.alignment import read_links
    from rela.plots.single import FIGURES, Wanted, draw
    from rela.plots.style import save_figure

    if figure not in FIGURES:
        raise ValueError(f"there is no figure {figure!r}; wanted one of {', '.join(FIGURES)}")
    links = None if gold is None else read_links(gold, one_based)[:limit]
    with progress_bars() as progress:
        wanted = Wanted(
            load_models(models, device), text_pairs(source, target, limit), links, seed, type, line, layer,
            head or (), progress,
        )  # fmt: skip
        axes = draw(figure, wanted)
    ending = out.suffix[1:].lower()
    known = ending in ("png", "svg", "pdf")
    for path in save_figure(axes, out.with_suffix("") if known else out, (ending,) if known else ("png", "svg")):
        print(path)


@app.command()
def explore(
    models: Annotated[list[str], typer.Argument(help="Model folders, or NAME=FOLDER to name them.")],
    gold_source: Annotated[Path | None, typer.Option(help="Source text of gold links.")] = None,
    gold_target: Annotated[Path | None, typer.Option(help="Its translation, line by line.")] = None,
    gold: GoldFile = None,
    one_based: OneBased = False,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 8765,
    export: Annotated[Path | None, typer.Option(help="Write one HTML file instead of serving.")] = None,
    source: Annotated[str | None, typer.Option(help="Sentence to export.")] = None,
    target: Annotated[str | None, typer.Option(help="Its translation; the models' own if left out.")] = None,
    device: Device = "auto",
) -> None:
    """Look into attention in a browser: every head of every layer, word by word, models side by side.

    Example: `rela explore demo/rela-g/model demo/softmax/model`, or for one file: `rela explore demo/rela-g/model --export look.html --source "The dog sleeps ."`
    """
    from importlib.util import find_spec

    from rela.explorer.examples import gold_examples, toy_examples
    from rela.explorer.export import write_export
    from rela.explorer.views import Views

    if any((gold_source, gold_target, gold)) and not all((gold_source, gold_target, gold)):
        raise ValueError("--gold-source, --gold-target and --gold belong together")
    if (export is None) != (source is None) or (target is not None and source is None):
        raise ValueError("--export, --source and, if wanted, --target belong together")
    if export is None and find_spec("uvicorn") is None:
        raise ImportError("the explorer's server needs fastapi and uvicorn: pip install 'rela-attention[explore]'")
    if gold_source and gold_target and gold:
        examples = gold_examples(gold_source, gold_target, gold, one_based)
    else:
        examples = toy_examples()
    views = Views(load_models(models, device), examples)
    if export is not None and source is not None:
        write_export(export, views.start(), [views.view(name, source, target) for name in views.translators])
        print(export)
        return
    from rela.explorer.server import serve

    serve(views, port, lambda line: print(line, flush=True))


@app.command()
def align(
    model: ModelFolder,
    source: Annotated[Path, typer.Argument(help="Source text, words separated by spaces.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line by line.")],
    out: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
    reverse: Annotated[Path | None, typer.Option(help="Model folder of the other direction.")] = None,
    symmetrise: Annotated[
        str, typer.Option(help="With --reverse: intersection, grow-diag, grow-diag-final or union.")
    ] = "grow-diag-final",
    dev_source: Annotated[Path | None, typer.Option(help="Text to choose layer and head on.")] = None,
    dev_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    dev_gold: Annotated[Path | None, typer.Option(help="Its gold links; the choice stays in the model folder.")] = None,
    one_based: OneBased = False,
    layer: Annotated[int | None, typer.Option(help="Decoder layer, from 1, instead of the remembered choice.")] = None,
    head: Annotated[int | None, typer.Option(help="Head of that layer, from 1; its mean if left out.")] = None,
    shifted: Annotated[
        bool, typer.Option(help="Of --layer: read the step after a word, or the step that writes it.")
    ] = True,
    device: Device = "auto",
) -> None:
    """Print word links in Pharaoh format, read from cross attention.

    Example: `rela align runs/en-de/model test.en test.de --reverse runs/de-en/model > test.align`
    """
    from rela.analysis.align import Aligner, AlignmentChoice, choose, save_choice
    from rela.analysis.align_corpus import align_corpus, choose_backward
    from rela.evaluation.alignment import pharaoh, read_links
    from rela.evaluation.symmetrise import SYMMETRISATIONS

    if symmetrise not in SYMMETRISATIONS:
        raise ValueError(f"symmetrise is {symmetrise!r}; wanted one of {', '.join(SYMMETRISATIONS)}")
    dev = (dev_source, dev_target, dev_gold)
    if any(dev) and not all(dev):
        raise ValueError("--dev-source, --dev-target and --dev-gold belong together")
    if head is not None and layer is None:
        raise ValueError("--head says which head of a layer; give --layer too")
    choice = None if layer is None else AlignmentChoice(layer - 1, None if head is None else head - 1, shifted)
    aligners = []
    for folder, chooser in ((model, choose), (reverse, choose_backward)):
        if folder is None:
            continue
        translator = load_models([str(folder)], device).popitem()[1]
        if dev_source and dev_target and dev_gold:
            found = chooser(translator, text_pairs(dev_source, dev_target, None), read_links(dev_gold, one_based))
            save_choice(folder, found)
            where = "its mean" if found.head is None else f"head {found.head + 1}"
            print(f"{folder}: layer {found.layer + 1}, {where}, {'shifted' if found.shifted else 'normal'} attention, "
                  f"AER {100 * (found.aer or 0):.2f} on the dev set", file=sys.stderr)  # fmt: skip
        check_choice(choice, translator)
        aligners.append(Aligner(translator, choice))
    backward = aligners[1] if reverse is not None else None
    with output_lines(out) as write:
        for links in align_corpus(aligners[0], paired_lines(source, target), backward, symmetrise):
            write(pharaoh(links))


def check_choice(choice: Any, translator: Any) -> None:
    """Refuse a layer or head the model does not have."""
    shape = translator.config.model
    if choice is not None and not 0 <= choice.layer < shape.decoder_layers:
        raise ValueError(f"layer is {choice.layer + 1}; the model has layers 1 to {shape.decoder_layers}")
    if choice is not None and choice.head is not None and not 0 <= choice.head < shape.heads:
        raise ValueError(f"head is {choice.head + 1}; the model has heads 1 to {shape.heads}")


@app.command()
def aer(
    hypothesis: Annotated[Path, typer.Argument(help="Links to judge: Pharaoh, talp or NAACL.")],
    gold: Annotated[Path, typer.Argument(help="Gold links, sure and possible: talp, Pharaoh or NAACL.")],
    one_based_hypothesis: Annotated[bool, typer.Option(help="The hypothesis counts words from 1.")] = False,
    one_based_gold: Annotated[bool, typer.Option(help="The gold links count words from 1.")] = False,
    flip_hypothesis: Annotated[bool, typer.Option(help="The hypothesis is written target first.")] = False,
    flip_gold: Annotated[bool, typer.Option(help="The gold links are written target first.")] = False,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Alignment error rate, precision and recall of word links.

    Example: `rela aer test.align gold.talp --one-based-gold`
    """
    from dataclasses import asdict

    from rela.evaluation.alignment import alignment_error_rate, read_hypotheses, read_links

    check_format(format, "text", "json")
    result = alignment_error_rate(
        read_hypotheses(hypothesis, one_based_hypothesis, flip_hypothesis), read_links(gold, one_based_gold, flip_gold)
    )
    print(json.dumps(asdict(result)) if format == "json" else result)


@app.command("filter")
def filter_pairs(
    model: ModelFolder,
    source: Annotated[Path, typer.Argument(help="Source side of the corpus.")],
    target: Annotated[Path, typer.Argument(help="Target side, line by line.")],
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

    Example: `rela filter runs/demo/model train.en train.de --keep 0.8 --page --out scores.tsv`; on several processes: `torchrun --nproc-per-node 4 -m rela filter …`
    """
    from rela.analysis.filter import check_order, filter_corpus, parts_folder, score_corpus
    from rela.analysis.filter_page import write_filter_page
    from rela.decoding.translate import Translator
    from rela.training.processes import join_processes

    check_order(by, keep, threshold)
    if (kept_source is None) != (kept_target is None):
        raise ValueError("--kept-source and --kept-target belong together")
    with join_processes(device) as processes, progress_bars() as progress:
        translator = Translator.load(model, str(processes.device))
        store = score_corpus(
            translator, source, target, parts_folder(out), rank=processes.rank, world=processes.world,
            progress=progress if processes.first else None,
        )  # fmt: skip
        processes.wait()
    if not processes.first:
        return
    files = (kept_source, kept_target) if kept_source and kept_target else None
    summary = filter_corpus(store, source, target, out, by=by, keep=keep, threshold=threshold, ranked=ranked,
                            text=text, kept_files=files)  # fmt: skip
    if page:
        write_filter_page(store, source, target, out.with_suffix(".html"), summary, sample, seed)
    print(summary)


def load_models(specifications: list[str], device: str) -> dict[str, Any]:
    """Models by name: NAME=FOLDER, or the folder's own name (its parent's, where it is called model)."""
    from rela.decoding.translate import Translator

    models: dict[str, Any] = {}
    for text in specifications:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).is_dir():
            folder = text
            path = Path(folder).absolute()
            name = path.parent.name if path.name in ("model", "best", "averaged") and path.parent.name else path.name
        if name in models:
            raise ValueError(f"two models are called {name}; write NAME={folder} to name one")
        models[name] = Translator.load(folder, device)
    return models


def text_pairs(source: Path, target: Path, limit: int | None) -> list[tuple[str, str]]:
    """Sentence pairs of two files, none of them empty; the first `limit` if that is given."""
    from itertools import islice

    from rela.data.corpus import read_pairs

    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; wanted at least 1")
    return list(islice(read_pairs(source, target, "raise"), limit))


def noise_files(text: str) -> tuple[str, tuple[Path, Path]]:
    """KIND=SOURCE,TARGET taken apart."""
    kind, equals, files = text.partition("=")
    parts = files.split(",")
    if not (equals and kind) or len(parts) != 2:
        raise ValueError(f"noise is {text!r}; wanted KIND=SOURCE,TARGET")
    return kind, (Path(parts[0]), Path(parts[1]))


def require_plots() -> None:
    """Say what is missing before any model is run."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib: pip install 'rela-attention[plots]'")


def command_line() -> str:
    """The command as one would type it again."""
    import shlex

    return shlex.join(["rela", *sys.argv[1:]])


def input_lines(path: Path | None) -> Iterator[str]:
    """Lines of a file (compressed or not) or of stdin, without their ends."""
    from rela.data.corpus import read_lines

    return read_lines("-" if path is None else path)


def paired_lines(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The n-th lines of two files, empty ones too; files of unequal length are an error at their end."""
    from itertools import zip_longest

    from rela.data.corpus import read_lines

    for left, right in zip_longest(read_lines(source), read_lines(target)):
        if left is None or right is None:
            raise ValueError(f"{source if left is None else target} ends first; wanted as many lines in both files")
        yield left, right


def check_format(format: str, *known: str) -> None:
    if format not in known:
        raise ValueError(f"format is {format!r}; wanted {' or '.join(known)}")


def chunked(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    from itertools import islice

    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


if __name__ == "__main__":
    main()
