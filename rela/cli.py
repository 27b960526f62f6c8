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
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        if type(error).__name__ == "Abort":  # what older releases of typer make of Ctrl-C
            fail("interrupted", code=130)
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


def describe(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return one_line(error) or type(error).__name__


def one_line(message: object) -> str:
    return " ".join(str(message).split())


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

    for path in get_dataset(name, out):
        print(path)


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


def progress_bars() -> Any:
    """Rich progress bars on stderr, as the callback (stage, done, total) that `prepare` takes."""
    import contextlib

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    @contextlib.contextmanager
    def bars() -> Iterator[Any]:
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        tasks: dict[str, Any] = {}
        with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:

            def tell(stage: str, done: int, total: int | None) -> None:
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=total)
                progress.update(tasks[stage], completed=done, total=total)

            yield tell

    return bars()


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


class Remembered:
    """An iterator over lines that also hands each one out again, in order, when its translation is printed."""

    def __init__(self, lines: Iterable[str]) -> None:
        from collections import deque

        self.lines, self.seen = iter(lines), deque[str]()

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.seen.append(line)
            yield line

    def take(self) -> str:
        return self.seen.popleft()


def output_lines(path: Path | None) -> Any:
    """A writer of lines to stdout, or to a file that appears only when it is complete."""
    import contextlib

    @contextlib.contextmanager
    def lines() -> Iterator[Any]:
        if path is None:
            yield lambda line: print(line, flush=True)
            return
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with open(partial, "w", encoding="utf-8") as file:
                yield lambda line: print(line, file=file)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    return lines()


def chunked(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    from itertools import islice

    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


if __name__ == "__main__":
    main()
