"""From text to a trained, evaluated, translating model."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rela.commands.options import ConfigFile, Device, ModelFolder, Overrides
from rela.terminal import (
    Remembered,
    check_format,
    chunked,
    fail,
    input_lines,
    output_lines,
    paired_lines,
    progress_bars,
)


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
    from rela.data.subwords import Subwords

    settings = load_config(config, overrides or ()).data
    subwords = Subwords.load(Path(settings.root) / settings.subwords) if settings.subwords else None
    with progress_bars() as progress:
        report = prepare_data(settings, progress, force=force, subwords=subwords)
    print(report.summary())


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


def translate(
    model: ModelFolder,
    source: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; stdin if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="α of ((5 + length) / 6)^α.")] = None,
    nbest: Annotated[int, typer.Option(help="Translations a sentence.")] = 1,
    sampling: Annotated[bool | None, typer.Option(help="Draw translations, or search the best.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling.")] = None,
    max_length_ratio: Annotated[float | None, typer.Option(help="Longest output, in source lengths.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Source tokens decoded together.")] = None,
    window: Annotated[
        int | None, typer.Option(help="Lines read before the first is answered; 1 in a dialogue.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16, fp32 or, on a CPU, int8.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="auto, graphs or reference: search on the GPU, or the plain one.")
    ] = None,
    scores: Annotated[bool, typer.Option(help="Put score and tab before each translation.")] = False,
    alignments: Annotated[bool, typer.Option(help="Put tab and Pharaoh links behind each translation.")] = False,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
) -> None:
    """Translate text, line by line, in order.

    Example: `echo "The dog is sleeping ." | rela translate runs/demo/model`
    """
    from rela.decoding.translate import Translator
    from rela.decoding.windows import WINDOW

    check_format(format, "text", "jsonl")
    translator = Translator.load(model, device)
    given = {"beam": beam, "length_penalty": length_penalty, "sampling": sampling, "temperature": temperature,
             "seed": seed, "max_length_ratio": max_length_ratio, "batch_tokens": batch_tokens,
             "precision": precision, "engine": engine}  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    if {"temperature", "seed"} & options.keys() and not options.get("sampling", translator.config.decode.sampling):
        raise ValueError("--temperature and --seed are of sampling; give --sampling too")
    if window is None:
        window = 1 if source is None and sys.stdin.isatty() else WINDOW
    aligner = make_aligner(translator) if alignments else None
    with output_lines(out) as write:
        sources = Remembered(input_lines(source))
        for number, group in enumerate(translator.translate_stream(sources, nbest, window, **options)):
            line = sources.take()
            links = [None] * len(group) if aligner is None else align_all(aligner, line, [item.text for item in group])
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


def make_aligner(translator: Any) -> Any:
    """The aligner of a model: the head it remembers is read from its folder once."""
    from rela.alignment.choose import Aligner

    return Aligner(translator)


def align_all(aligner: Any, source: str, targets: list[str]) -> list[str]:
    """Pharaoh links of a source with each of its translations."""
    from rela.decoding.translate import PairTooLong
    from rela.evaluation.alignment import pharaoh

    try:
        return [pharaoh(links) for links in aligner.align([source] * len(targets), targets)]
    except PairTooLong as error:  # its translation was cut with a warning, and is worth printing
        warnings.warn(f"no alignment: {error}", stacklevel=2)
        return [""] * len(targets)


def score(
    model: ModelFolder,
    source: Annotated[Path, typer.Argument(help="Source text.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line by line.")],
    tokens: Annotated[bool, typer.Option(help="Also the log-probability of each subword.")] = False,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or, on a CPU, int8.")] = None,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
) -> None:
    """Print the log-probability a model gives to each translation.

    Example: `rela score runs/demo/model test.en test.de --tokens`
    """
    from itertools import count

    from rela.decoding.translate import PairTooLong, Translator
    from rela.decoding.windows import WINDOW

    check_format(format, "text", "jsonl")
    translator = Translator.load(model, device)
    options = {} if precision is None else {"precision": precision}
    for first, chunk in zip(count(1, WINDOW), chunked(paired_lines(source, target), WINDOW), strict=False):
        try:
            scored = translator.score(*map(list, zip(*chunk, strict=True)), **options)
        except PairTooLong:
            name_too_long(translator, chunk, first)
            raise
        for item in scored:
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


def name_too_long(translator: Any, chunk: list[tuple[str, str]], first: int) -> None:
    """Say which line of a text holds a pair too long for the model; the chunk begins with line `first`."""
    from rela.decoding.translate import PairTooLong

    for line, (source, target) in enumerate(chunk, start=first):
        try:
            translator.encode_pair(source, target)
        except PairTooLong as error:
            raise PairTooLong(f"line {line}: {error}") from None


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
