"""From a trained model to translations and their scores."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rela.commands.markup import document_format, make_passages, refuse_for_documents, translate_file
from rela.commands.options import Device, ModelFolder, On, OutputFile, RayWorkers, ShardLines, SourceText, TargetText
from rela.commands.outputs import check_outputs
from rela.commands.search_options import (
    BatchTokens,
    Beam,
    DecodeEngine,
    LengthPenalty,
    MaxLengthRatio,
    MinLength,
    NoRepeatNgram,
    Precision,
    Sampling,
    SamplingSeed,
    Temperature,
    TopK,
    TopP,
    search_options,
)
from rela.commands.translated_lines import Columns, TranslatedLines
from rela.terminal import check_format, chunked, output_lines, paired_lines


def translate(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [SRC]",
            help="Model folder, or several for an ensemble; then the source text, one sentence a line, or else stdin.",
        ),
    ],
    out: OutputFile = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    nbest: Annotated[int, typer.Option(help="Translations of each sentence.")] = 1,
    sampling: Sampling = None,
    temperature: Temperature = None,
    seed: SamplingSeed = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_length: MinLength = None,
    no_repeat_ngram: NoRepeatNgram = None,
    prefixes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What each translation must begin with, line by line.")
    ] = None,
    rerank: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Rerank the beam with a model of the other direction.")
    ] = None,
    rerank_weight: Annotated[
        float | None, typer.Option(help="Weight of the other direction's score, 0 to 1; 0.5 if left out.")
    ] = None,
    max_length_ratio: MaxLengthRatio = None,
    batch_tokens: BatchTokens = None,
    window: Annotated[
        int | None, typer.Option(help="Lines read before the first is translated; 1 to answer line by line.")
    ] = None,
    precision: Precision = None,
    engine: DecodeEngine = None,
    document: Annotated[
        str | None,
        typer.Option(help="html, xml, md, srt, po, txt, tagged or lines; by the ending of SRC if left out."),
    ] = None,
    glossary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Terms to use, one a line: source term, tab, target term.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep finished lines beside --out when interrupted; go on from them.")
    ] = False,
    scores: Annotated[bool, typer.Option(help="Put score and tab before each translation.")] = False,
    alignments: Annotated[bool, typer.Option(help="Put tab and Pharaoh links behind each translation.")] = False,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
    on: On = None,
    workers: RayWorkers = None,
    shard_lines: ShardLines = 8192,
) -> None:
    """Translate text, line by line, in order, or a document: .html .xml .md .srt .po.

    Example: `echo "The dog is sleeping ." | rela translate runs/demo/model`
    """
    import rela

    check_format(format, "text", "jsonl")
    models, source = models_and_source(words)
    written = [] if on else [out]  # where it is a folder, that is checked with the shards
    all_models: list[str | Path] = [*models, *([] if rerank is None else [rerank])]
    check_outputs(written, [source, prefixes, glossary], all_models)
    reranker = make_reranker(rerank, rerank_weight, device)
    translator = rela.load(models, device)
    warn_of_direction(rerank, reranker, translator)
    given = {
        "beam": beam,
        "length_penalty": length_penalty,
        "sampling": sampling,
        "temperature": temperature,
        "seed": seed,
        "top_k": top_k,
        "top_p": top_p,
        "min_length": min_length,
        "no_repeat_ngram": no_repeat_ngram,
        "max_length_ratio": max_length_ratio,
        "batch_tokens": batch_tokens,
        "precision": precision,
        "engine": engine,
    }
    options = search_options(given, translator.config.decode.sampling)
    columns = Columns(nbest, scores, alignments, format)
    if on is not None:
        from rela.commands.ray_jobs import TranslateRows, refuse_on_ray, write_on_ray

        refused = {"prefixes": prefixes, "rerank": rerank, "document": document, "glossary": glossary}
        refuse_on_ray(on, {**refused, "window": window})
        job = TranslateRows(models, options, nbest, alignments, scores, format, device)
        write_on_ray(job, models, [source], out, workers, shard_lines)
        return
    kind = document_format(source, document, glossary)
    if kind is not None:
        refuse_for_documents({**columns.given, "--prefixes": prefixes is not None, "--resume": resume}, kind)
        passages = make_passages(translator, glossary, document, {**options, "rerank": reranker})
        translate_file(passages, source, out, kind, window)
        return
    lines = TranslatedLines(translator, source, columns, options, window, prefixes, reranker)
    if resume:
        lines.write_resumable(out, all_models, rerank_weight)
    else:
        lines.write(out)


def models_and_source(words: list[str]) -> tuple[list[str], Path | None]:
    """Model folders, and the text behind them; a model is a folder, a text is a file or -, the standard input."""
    *models, last = words
    if last == "-":
        models, source = models, None
    elif models and not Path(last).is_dir():
        source = Path(last)
    else:
        models, source = words, None
    if not models:
        raise ValueError(f"came {' '.join(words)}; wanted MODEL... [SRC]: folders of models, then a file of text")
    return models, source


def make_reranker(model: Path | None, weight: float | None, device: str) -> Any:
    """What orders translations again by a model of the other direction, or None."""
    from rela.decoding.rerank import Reranker
    from rela.decoding.translate import Translator

    if model is None:
        if weight is not None:
            raise ValueError("--rerank-weight without effect: wanted --rerank MODEL too")
        return None
    return Reranker(Translator.load(model, device), 0.5 if weight is None else weight)


def warn_of_direction(model: Path | None, reranker: Any, translator: Any) -> None:
    """Warn of a reranking model whose config does not say the other direction."""
    if reranker is not None and reranker.reverse.languages != translator.languages[::-1]:
        said = [" to ".join(one.languages) for one in (reranker.reverse, translator)]
        warnings.warn(
            f"the config of {model} says {said[0]}, and the model's {said[1]}; wanted the other direction",
            stacklevel=2,
        )


def score(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: OutputFile = None,
    tokens: Annotated[bool, typer.Option(help="Also the log-probability of each subword.")] = False,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or, on a CPU, int8.")] = None,
    format: Annotated[str, typer.Option(help="text or jsonl.")] = "text",
    device: Device = "auto",
) -> None:
    """Print the log-probability a model gives to each translation.

    Example: `rela score runs/demo/model test.en test.de --tokens`
    """
    from itertools import count

    from rela.decoding.translate import Translator
    from rela.decoding.windows import WINDOW

    check_format(format, "text", "jsonl")
    check_outputs([out], [source, target], [model])
    translator = Translator.load(model, device)
    options = {} if precision is None else {"precision": precision}
    without: dict[int, str] = {}
    with output_lines(out, "scored") as write:
        for first, chunk in zip(count(1, WINDOW), chunked(paired_lines(source, target), WINDOW), strict=False):
            wrong = {number: problem(translator, *pair) for number, pair in enumerate(chunk, first)}
            usable = {number: pair for number, pair in enumerate(chunk, first) if not wrong[number]}
            found = translator.score(*map(list, zip(*usable.values(), strict=True)), **options) if usable else []
            scored = dict(zip(usable, found, strict=True))
            for number in range(first, first + len(chunk)):
                write(score_line(scored.get(number), tokens, format))
            without |= {number: why for number, why in wrong.items() if why}
    if without:
        line, why = next(iter(without.items()))
        pairs = f"{len(without)} pair{'s have' if len(without) > 1 else ' has'} no score"
        warnings.warn(f"{pairs}, the first: line {line}: {why}", stacklevel=2)


def problem(translator: Any, source: str, target: str) -> str:
    """Why a pair gets no score; nothing if it does."""
    from rela.data.corpus import EMPTY, is_empty
    from rela.decoding.translate import PairTooLong

    if is_empty(source, target):
        return EMPTY
    try:
        translator.encode_pair(source, target)
    except PairTooLong as error:
        return str(error)
    return ""


def score_line(item: Any, tokens: bool, format: str) -> str:
    """One score as it is printed; an empty line, or null, for a pair without one."""
    if item is None:
        return json.dumps({"log_prob": None, "pieces": [], "log_probs": []}) if format == "jsonl" else ""
    if format == "jsonl":
        row = {"log_prob": item.log_prob, "pieces": item.pieces, "log_probs": item.log_probs}
        return json.dumps(row, ensure_ascii=False, allow_nan=False)
    parts = " ".join(f"{piece}:{value:.4f}" for piece, value in zip(item.pieces, item.log_probs, strict=True))
    return f"{item.log_prob:.6f}" + (f"\t{parts}" if tokens else "")


def evaluate(
    hypothesis: Annotated[Path, typer.Argument(help="Translations.")],
    reference: Annotated[Path, typer.Argument(help="References, line by line.")],
    ter: Annotated[bool, typer.Option("--ter", help="Also the translation edit rate, which takes longer.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="Other translations: is the difference significant? (paired bootstrap)")
    ] = None,
    comet: Annotated[
        Path | None, typer.Option(metavar="SRC", help="Also COMET, with this source text (needs the extra comet).")
    ] = None,
    comet_model: Annotated[
        str | None, typer.Option(help="A COMET model by name, or its file; Unbabel/wmt22-comet-da if left out.")
    ] = None,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """BLEU and chrF with their signatures, and BLEU as multi-bleu.perl computes it on the text as it is.

    Example: `rela evaluate output.de test.de --baseline other.de`
    """
    from rela.evaluation import scores
    from rela.evaluation.comet import MODEL
    from rela.evaluation.comet import comet as comet_of
    from rela.evaluation.significance import paired_bootstrap

    check_format(format, "text", "json")
    if comet_model is not None and comet is None:
        raise ValueError("--comet-model without effect: wanted --comet SRC too")
    references, hypotheses = parallel_lines(reference, hypothesis)
    results: list[Any] = [measure(hypotheses, references) for measure in (scores.bleu, scores.chrf)]
    results += [scores.ter(hypotheses, references)] if ter else []
    results.append(scores.tokenised_bleu(hypotheses, references))
    if comet is not None:
        _, sources = parallel_lines(reference, comet)
        results.append(comet_of(sources, hypotheses, references, comet_model or MODEL))
    if baseline is not None:
        _, others = parallel_lines(reference, baseline)
        results += paired_bootstrap(hypotheses, others, references, ter)
    if format == "json":
        print(json.dumps([vars(result) for result in results], allow_nan=False))
    else:
        print("\n".join(map(str, results)))


def parallel_lines(reference: Path, other: Path) -> tuple[list[str], list[str]]:
    """The lines of two texts, of which there must be equally many."""
    from rela.data.corpus import read_lines
    from rela.data.tables import is_table

    if tables := [path for path in (other, reference) if is_table(path)]:
        raise ValueError(f"{tables[0]} is a table; wanted lines of text, as rela translate writes without --format")
    references, others = list(read_lines(reference)), list(read_lines(other))
    if len(others) != len(references):
        raise ValueError(f"{other} has {len(others)} lines and {reference} {len(references)}; wanted equally many")
    return references, others


def info(model: ModelFolder) -> None:
    """Print what a model is made of: attention kinds and parameters by part.

    Example: `rela info runs/demo/model`
    """
    from rela.model.folder import load_folder

    transformer, config, _ = load_folder(model)
    shape = config.model
    print(
        f"{shape.encoder_layers}+{shape.decoder_layers} layers, width {shape.width}, {shape.heads} heads, "
        f"feed-forward {shape.feed_forward}, vocabulary {shape.vocabulary_size}, "
        f"{'pre' if shape.norm_first else 'post'}-norm, tied embeddings: {shape.tied_embeddings}"
    )
    print("attention: " + ", ".join(f"{type} {kind}" for type, kind in shape.attention_kinds.items()))
    counts = transformer.parameter_counts()
    for name, count in counts.items():
        print(f"{name:<18} {count:>12,}")
    print(f"{'parameters':<18} {sum(counts.values()):>12,}")
