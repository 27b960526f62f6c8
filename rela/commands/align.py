"""Word links of parallel text: print them, choose where they are read, judge them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rela.commands.arguments import load_models, text_pairs
from rela.commands.options import (
    Device,
    GoldFlipped,
    GoldOneBased,
    ModelFolder,
    OutputFile,
    SourceText,
    TargetText,
    Tokenised,
)
from rela.commands.outputs import check_outputs
from rela.terminal import check_format, output_lines, paired_lines


def align(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: OutputFile = None,
    reverse: Annotated[Path | None, typer.Option(help="Model folder of the other direction.")] = None,
    symmetrise: Annotated[
        str | None,
        typer.Option(
            help="One set of links out of two: intersection, grow-diag, grow-diag-final-and (if left out, with "
            "--reverse), grow-diag-final or union; without --reverse, of one model's rows and columns."
        ),
    ] = None,
    dev_source: Annotated[Path | None, typer.Option(help="Text to choose layer and head on.")] = None,
    dev_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    dev_gold: Annotated[Path | None, typer.Option(help="Its gold links; the choice stays in the model folder.")] = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    tokenised: Tokenised = False,
    layer: Annotated[int | None, typer.Option(help="Decoder layer, from 1, instead of the remembered choice.")] = None,
    head: Annotated[
        list[int] | None, typer.Option(help="Head of that layer, from 1 (repeatable); its mean if left out.")
    ] = None,
    shifted: Annotated[
        bool | None,
        typer.Option(help="Of --layer: read the step after a word (if left out), or the step that writes it."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Print word links in Pharaoh format, read from cross attention.

    Heads are those `rela fit-aligner` chose; for a model where it was not run, they are chosen on this text first.
    Example: `rela align runs/en-de/model test.en test.de --reverse runs/de-en/model > test.align`
    """
    from rela.alignment.choose import Aligner, AlignmentChoice, check_choice, choose, save_choice
    from rela.alignment.corpus import align_corpus, choose_backward, choose_if_needed
    from rela.evaluation.alignment import pharaoh, read_links

    check_symmetrisation(symmetrise)
    dev = (dev_source, dev_target, dev_gold)
    if any(dev) and not all(dev):
        raise ValueError("--dev-source, --dev-target and --dev-gold belong together")
    if head and layer is None:
        raise ValueError("--head says which head of a layer; give --layer too")
    if shifted is not None and layer is None:
        raise ValueError("--shifted and --no-shifted say how to read a layer; give --layer too")
    check_outputs([out], [source, target, *dev], [model, *([reverse] if reverse else [])])
    choice = None
    if layer is not None:
        choice = AlignmentChoice(layer - 1, tuple(one - 1 for one in head) if head else None, shifted is not False)

    def make_aligner(folder: Path, chooser: Any) -> Aligner:
        translator = load_models([str(folder)], device).popitem()[1]
        if dev_source and dev_target and dev_gold:
            links = read_links(dev_gold, gold_one_based, gold_flipped)
            found = chooser(translator, text_pairs(dev_source, dev_target, None), links, tokenised)
            save_choice(translator.folder, found)
            print(f"{translator.folder}: {found}", file=sys.stderr)
        if choice is not None:
            check_choice(choice, translator)
        return Aligner(translator, choice, tokenised)

    forward = make_aligner(model, choose)
    backward = None if reverse is None else make_aligner(reverse, choose_backward)
    new = [aligner for aligner in (forward, backward) if aligner is not None and not aligner.chosen]
    with output_lines(out) as write:
        pairs = choose_if_needed(forward, paired_lines(source, target), backward)
        for aligner in new:
            where = "chosen on this text; rela fit-aligner keeps a choice"
            print(f"{aligner.translator.folder}: {aligner.choice} ({where})", file=sys.stderr)
        for links in align_corpus(forward, pairs, backward, symmetrise):
            write(pharaoh(links))


def check_symmetrisation(method: str | None) -> None:
    """Refuse a method there is not, before a model is loaded."""
    from rela.evaluation.symmetrise import SYMMETRISATIONS

    if method is not None and method not in SYMMETRISATIONS:
        raise ValueError(f"symmetrise is {method!r}; wanted one of {', '.join(SYMMETRISATIONS)}")


def fit_aligner(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    reverse: Annotated[
        Path | None, typer.Option(help="Model folder of the other direction; the two are chosen by their agreement.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Sentence pairs to choose heads on.")] = 500,
    tokenised: Tokenised = False,
    device: Device = "auto",
) -> None:
    """Choose the layer and heads that word links are read from, without gold links; kept in the model folder.

    Any parallel text will do, such as the validation set; with --reverse both models' folders get their choice.
    Example: `rela fit-aligner runs/en-de/model valid.en valid.de --reverse runs/de-en/model`
    """
    from rela.alignment.agreement import choose_alone, choose_together
    from rela.alignment.choose import save_choice

    folders = [model] if reverse is None else [model, reverse]
    translators = [load_models([str(folder)], device).popitem()[1] for folder in folders]
    stream = paired_lines(source, target)
    if reverse is None:
        choices = [choose_alone(translators[0], stream, tokenised, pairs)]
    else:
        choices = list(choose_together(translators[0], translators[1], stream, tokenised, pairs))
    for translator, choice in zip(translators, choices, strict=True):
        save_choice(translator.folder, choice)
        print(f"{translator.folder}: {choice}")


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
    print(json.dumps(asdict(result), allow_nan=False) if format == "json" else result)
