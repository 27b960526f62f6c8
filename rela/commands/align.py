"""Word links of parallel text: print them, choose where they are read, judge them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from rela.commands.arguments import load_model, text_pairs
from rela.commands.options import (
    Device,
    GoldFlipped,
    GoldOneBased,
    ModelFolder,
    On,
    OutputFile,
    RayWorkers,
    ShardLines,
    SourceText,
    TargetText,
    Tokenised,
)
from rela.commands.outputs import check_outputs, check_writable
from rela.terminal import check_format, output_lines, paired_lines, progress_bars

if TYPE_CHECKING:
    from rela.alignment.choose import Aligner, AlignmentChoice
    from rela.alignment.fitted import FittedAligner
    from rela.alignment.joint import JointAligner
    from rela.decoding.translate import Translator

MOST_DRAWS = 1_000_000
"""Of a bootstrap."""
FEW_PAIRS = 20
"""With fewer pairs heads that are far from the best may agree most."""


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
            "--reverse), grow-diag-final, union or product; without --reverse, of one model's rows and columns."
        ),
    ] = None,
    dev_source: Annotated[Path | None, typer.Option(help="Text to choose layer and head on.")] = None,
    dev_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    dev_gold: Annotated[
        Path | None, typer.Option(help="Its gold links; the choice is stored in the model folder.")
    ] = None,
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    tokenised: Tokenised = False,
    layer: Annotated[int | None, typer.Option(help="Decoder layer, from 1, instead of the stored choice.")] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(help="Head of that layer, from 1 (repeatable); the mean of all heads if left out."),
    ] = None,
    shifted: Annotated[
        bool | None,
        typer.Option(help="Of --layer: read the step after a word (if left out), or the step that writes it."),
    ] = None,
    aligner: Annotated[
        str | None,
        typer.Option(help="fitted (if there is one: rela fit-aligner --train) or heads of cross attention."),
    ] = None,
    device: Device = "auto",
    on: On = None,
    workers: RayWorkers = None,
    shard_lines: ShardLines = 8192,
) -> None:
    """Print word links in Pharaoh format, read from cross attention or from a trained aligner on top.

    Heads are those `rela fit-aligner` chose; for a model where it was not run, they are chosen on this text first.
    Example: `rela align runs/en-de/model test.en test.de --reverse runs/de-en/model > test.align`
    """
    from rela.alignment.choose import Aligner, AlignmentChoice, choose
    from rela.alignment.corpus import align_corpus, choose_backward
    from rela.alignment.joint import joint_file
    from rela.decoding.directions import check_opposite
    from rela.evaluation.alignment import pharaoh, read_links

    check_symmetrisation(symmetrise)
    dev = (dev_source, dev_target, dev_gold)
    by_hand = {"--head": bool(head), "--shifted": shifted is not None}
    check_aligner(aligner, dev, layer, by_hand)
    check_outputs([] if on else [out], [source, target, *dev], [model, *([reverse] if reverse else [])])
    choice = None
    if layer is not None:
        choice = AlignmentChoice(layer - 1, tuple(one - 1 for one in head) if head else None, shifted is not False)
    there = load_model(model, device)
    back = None if reverse is None else load_model(reverse, device)
    check_opposite(there, back)
    if dev_source and dev_target and dev_gold:
        check_choices_writable(one for one in (there, back) if one is not None)
        gold = read_links(dev_gold, gold_one_based, gold_flipped)
        pairs = text_pairs(dev_source, dev_target, None)
        remember_choice(there, choose(there, pairs, gold, tokenised), sys.stderr)
        if back is not None:
            remember_choice(back, choose_backward(back, pairs, gold, tokenised), sys.stderr)
    forward = Aligner(there, choice, tokenised)
    backward = None if back is None else Aligner(back, choice, tokenised)
    trained = None if aligner == "heads" or choice is not None or any(dev) else trained_aligner(forward, backward)
    if aligner == "fitted" and trained is None:
        which = "" if reverse is None else f" with the reverse model {reverse}"
        if back is None and joint_file(there) is not None:
            raise ValueError(f"{model} has a trained aligner of two models; wanted --reverse MODEL too")
        raise ValueError(f"{model} has no trained aligner{which}; run rela fit-aligner --train")
    if trained is None and aligner is None and choice is None and not any(dev):
        say_if_one_has_an_aligner(there, back)
    if on is not None:
        from rela.commands.ray_jobs import align_on_ray

        aligners = (forward, backward, trained is not None)
        align_on_ray(on, aligners, symmetrise, (source, target), out, workers, shard_lines, device)
        return
    with output_lines(out, "aligned") as write:
        stream = paired_lines(source, target)
        if trained is not None:
            found = align_corpus(trained, stream, None, symmetrise)
        else:
            found = align_corpus(forward, with_choice(forward, backward, stream), backward, symmetrise)
        for links in found:
            write(pharaoh(links))


def check_choices_writable(translators: Iterable[Translator]) -> None:
    """Refuse, before any work, model folders of which one cannot keep its choice of heads."""
    from rela.alignment.choose import CHOICE

    for translator in translators:
        assert translator.folder is not None
        check_writable(translator.folder / CHOICE)


def say_if_one_has_an_aligner(forward: Translator, backward: Translator | None) -> None:
    """A line on stderr where one of two folders has a trained aligner of both and the other has lost its own."""
    from rela.alignment.joint import joint_file

    if backward is None:
        return
    lacking, having = sorted((forward, backward), key=lambda one: joint_file(one) is not None)
    if joint_file(lacking) is None and joint_file(having) is not None:
        found = f"{having.folder} has a trained aligner, {lacking.folder} has none"
        print(f"{found}: links are those of the heads", file=sys.stderr)


def remember_choice(translator: Translator, choice: AlignmentChoice, stream: TextIO) -> None:
    """Keep the heads that were chosen for a model in its folder, and print them."""
    from rela.alignment.choose import save_choice

    assert translator.folder is not None
    save_choice(translator.folder, choice)
    print(f"{translator.folder}: {choice}", file=stream, flush=True)


def with_choice(
    forward: Aligner, backward: Aligner | None, pairs: Iterator[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """The same pairs; heads of models that remember none are chosen on the first of them, and printed."""
    from rela.alignment.corpus import choose_if_needed

    new = [one for one in (forward, backward) if one is not None and not one.chosen]
    pairs = choose_if_needed(forward, pairs, backward)
    for one in new:
        where = "chosen on this text; rela fit-aligner keeps a choice"
        print(f"{one.translator.folder}: {one.choice} ({where})", file=sys.stderr)
    return pairs


def check_aligner(
    aligner: str | None, dev: tuple[Path | None, ...], layer: int | None, by_hand: dict[str, bool]
) -> None:
    """Refuse options that contradict each other."""
    if any(dev) and not all(dev):
        raise ValueError("--dev-source, --dev-target and --dev-gold belong together")
    for option, given in by_hand.items():
        if given and layer is None:
            raise ValueError(f"{option} says how a layer is read; give --layer too")
    if aligner not in (None, "heads", "fitted"):
        raise ValueError(f"aligner is {aligner!r}; wanted heads or fitted")
    if aligner == "fitted" and (layer is not None or any(dev)):
        raise ValueError("--layer and --dev-gold are about heads; leave out --aligner fitted")


def trained_aligner(forward: Aligner, backward: Aligner | None) -> FittedAligner | JointAligner | None:
    """The trained aligner of one model, or that of two models, if there is one."""
    from rela.alignment.fitted import load_fitted
    from rela.alignment.joint import load_joint

    if backward is None:
        return load_fitted(forward.translator, forward.tokenised)
    return load_joint(forward.translator, backward.translator, forward.tokenised)


def check_symmetrisation(method: str | None) -> None:
    """Refuse a method there is not, before a model is loaded."""
    from rela.alignment.corpus import METHODS

    if method is not None and method not in METHODS:
        raise ValueError(f"symmetrise is {method!r}; wanted one of {', '.join(METHODS)}")


def fit_aligner(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    reverse: Annotated[
        Path | None, typer.Option(help="Model folder of the other direction; the two are chosen by their agreement.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Sentence pairs to choose heads on.")] = 500,
    train: Annotated[
        bool, typer.Option("--train", help="Also train an aligner on the links of the heads; it is used from then on.")
    ] = False,
    train_pairs: Annotated[
        int | None, typer.Option(help="With --train: most pairs to learn from; 6,000, or 20,000 for one model.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="With --train: training steps of each of two rounds; 600. Of one model: 2,000.")
    ] = None,
    tokenised: Tokenised = False,
    device: Device = "auto",
) -> None:
    """Choose the layer and heads that word links are read from, without gold links; kept in the model folder.

    Any parallel text will do, such as the validation set, or for --train some of the training text; with --reverse
    both models' folders get their choice.
    Example: `rela fit-aligner runs/en-de/model valid.en valid.de --reverse runs/de-en/model`
    """
    from itertools import islice, tee

    from rela.alignment.agreement import choose_alone, choose_together
    from rela.alignment.choose import Aligner

    if (train_pairs is not None or steps is not None) and not train:
        raise ValueError("--train-pairs and --steps are about a trained aligner; give --train too")
    for name, value in (("train-pairs", train_pairs), ("steps", steps)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; wanted at least 1")
    folders = [model] if reverse is None else [model, reverse]
    translators = [load_model(folder, device) for folder in folders]
    check_choices_writable(translators)
    stream, counted, again = tee(paired_lines(source, target), 3)  # read once: it may come from a pipe
    if reverse is None:
        choices = [choose_alone(translators[0], stream, tokenised, pairs)]
    else:
        choices = list(choose_together(translators[0], translators[1], stream, tokenised, pairs))
    for translator, choice in zip(translators, choices, strict=True):
        remember_choice(translator, choice, sys.stdout)
    count = sum(1 for _ in islice(counted, min(pairs, FEW_PAIRS)))
    if count < FEW_PAIRS:
        text = f"heads that agree most on {count} pair{'s' * (count > 1)} may be far from the best"
        print(f"{text}; give {FEW_PAIRS} or more", file=sys.stderr)
    if train:
        aligners = [Aligner(one, choice, tokenised) for one, choice in zip(translators, choices, strict=True)]
        train_aligner(aligners, again, train_pairs, steps)


def train_aligner(
    aligners: list[Aligner], pairs: Iterator[tuple[str, str]], limit: int | None, steps: int | None
) -> None:
    """Train an aligner for one model, or for two of opposite directions together; it goes into their folders."""
    from rela.alignment import fit, joint_fit
    from rela.alignment.fitted import save_fitted
    from rela.alignment.joint import save_joint

    folder = aligners[0].translator.folder
    assert folder is not None
    with progress_bars() as progress:
        if len(aligners) == 1:
            limit, steps = limit or fit.TRAIN_PAIRS, steps or fit.STEPS
            alone = fit.fit(aligners[0], pairs, limit=limit, steps=steps, progress=progress)
        else:
            limit, steps = limit or joint_fit.TRAIN_PAIRS, steps or joint_fit.STEPS
            joint = joint_fit.fit_joint(aligners[0], aligners[1], pairs, limit=limit, steps=steps, progress=progress)
    if len(aligners) == 1:
        save_fitted(folder, alone.aligner)
        losses = ", ".join(f"{loss:.3f}" for loss in alone.losses)
        print(f"{folder}: trained aligner on decoder state {alone.aligner.layer} (losses kept out: {losses})")
    else:
        save_joint(joint.aligner)
        print(f"{folder}, {aligners[1].translator.folder}: trained aligner of both (loss kept out: {joint.loss:.3f})")


def aer(
    hypothesis: Annotated[Path, typer.Argument(help="Links to judge, or - for stdin: Pharaoh, talp or NAACL.")],
    gold: Annotated[Path, typer.Argument(help="Gold links, sure and possible: talp, Pharaoh or NAACL.")],
    gold_one_based: GoldOneBased = False,
    gold_flipped: GoldFlipped = False,
    hypothesis_one_based: Annotated[
        bool, typer.Option("--hypothesis-one-based", help="The hypothesis counts words from 1.")
    ] = False,
    hypothesis_flipped: Annotated[
        bool, typer.Option("--hypothesis-flipped", help="The hypothesis is written target first.")
    ] = False,
    bootstrap: Annotated[
        int, typer.Option(help="Also a 95 % confidence interval of the AER, by so many draws of the sentences.")
    ] = 0,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Alignment error rate, precision and recall of word links.

    Example: `rela aer test.align gold.talp --gold-one-based`
    """
    from dataclasses import asdict

    from rela.evaluation.alignment import alignment_error_rate, alignment_interval, read_hypotheses, read_links

    check_format(format, "text", "json")
    if not 0 <= bootstrap <= MOST_DRAWS:
        raise ValueError(f"bootstrap is {bootstrap}; wanted 0 to {MOST_DRAWS:,}")
    hypotheses = read_hypotheses(hypothesis, hypothesis_one_based, hypothesis_flipped)
    answers = read_links(gold, gold_one_based, gold_flipped)
    result = alignment_error_rate(hypotheses, answers)
    interval = alignment_interval(hypotheses, answers, bootstrap) if bootstrap else None
    if format == "json":
        more = {} if interval is None else {"interval": interval}
        print(json.dumps(asdict(result) | more, allow_nan=False))
    else:
        print(result, "" if interval is None else f"  95 % {100 * interval[0]:.2f} to {100 * interval[1]:.2f}", sep="")
