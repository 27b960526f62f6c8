"""Bad translations found pair by pair."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rela.commands.arguments import load_model, text_pairs
from rela.commands.options import (
    Device,
    ModelFolder,
    On,
    OutputFile,
    RayWorkers,
    ShardLines,
    SourceText,
    TargetText,
)
from rela.commands.outputs import check_outputs, check_writable
from rela.terminal import check_format, output_lines, paired_lines

if TYPE_CHECKING:
    from rela.decoding.translate import Translator
    from rela.filtering.check import Checker, PairCheck

LEAST_PAIRS, MOST_WARNED = 20, 0.9
"""Pairs, and the share of them that are bad, beyond which the files are rather swapped or shifted."""
COLUMNS = ("line", "score", "verdict", "log_prob", "contrast", "null_rate", "no_source", "untranslated", "problem")


def check(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: OutputFile = None,
    reverse: Annotated[Path | None, typer.Option(help="Model folder of the other direction.")] = None,
    format: Annotated[str, typer.Option(help="tsv, or jsonl with all values of a pair.")] = "tsv",
    page: Annotated[Path | None, typer.Option(help="Also write the worst pairs as a page: FILE.html.")] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="SRC TGT are trusted pairs: fit score and thresholds, check nothing.")
    ] = False,
    pairs: Annotated[
        int | None, typer.Option(help="With --calibrate: trusted pairs to use, 1,000 if left out.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(help="With --calibrate: pairs to be checked are of the same domain, or (if left out) of another."),
    ] = None,
    reference: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="SENTENCE SENTENCE",
            help="With --calibrate: source and target that others are compared with, and that the folder keeps; "
            "a trusted pair's if left out.",
        ),
    ] = None,
    device: Device = "auto",
    on: On = None,
    workers: RayWorkers = None,
    shard_lines: ShardLines = 8192,
) -> None:
    """Find bad translations: one score a pair (high is bad), words without a source, words left untranslated.

    Example: `rela check runs/de-en/model valid.de valid.en --reverse runs/en-de/model --calibrate`, once, then
    `rela check runs/de-en/model new.de new.en --reverse runs/en-de/model --format jsonl`
    """
    check_format(format, "tsv", "jsonl")
    if any(given is not None for given in (pairs, domain, reference)) and not calibrate:
        raise ValueError("--pairs, --domain and --reference say how to calibrate; give --calibrate too")
    if calibrate and (out is not None or page is not None):
        raise ValueError("--calibrate writes into the model folder only; leave out --out and --page")
    check_outputs([page] if on else [out, page], [source, target], [model, *([reverse] if reverse else [])])
    forward = load_model(model, device)
    backward = None if reverse is None else load_model(reverse, device)
    if on is not None:
        from rela.commands.ray_jobs import refuse_on_ray

        refuse_on_ray(on, {"calibrate": calibrate, "page": page})
    if calibrate:
        from rela.filtering.calibration import TRUSTED
        from rela.filtering.detector import DETECTOR

        assert forward.folder is not None
        check_writable(forward.folder / DETECTOR)
        trusted = text_pairs(source, target, TRUSTED if pairs is None else pairs)
        fit(forward, backward, trusted, domain or "other", reference)
        return
    from rela.filtering.check import Checker

    checker = Checker(forward, backward)
    how = "" if reverse is None else f" --reverse {reverse}"
    wanted = f"rela check {model} TRUSTED_SRC TRUSTED_TGT{how} --calibrate"
    if checker.detector is None:
        score = "the score is minus the log-probability, and no word is marked"
        print(f"{model} is not calibrated for this: {score}; {wanted} fits a better one", file=sys.stderr)
    elif why := why_no_links(checker):
        print(f"{model}, {reverse}: {why}; words are marked without links until {wanted} is run", file=sys.stderr)
    if on is not None:
        check_on_ray(checker, (source, target), out, format, workers, shard_lines, device)
        return
    with output_lines(out) as write:
        counts: Counter[str] = Counter()
        checks = counted(written(checker.check(paired_lines(source, target)), write, format), counts)
        if page is None:
            for _ in checks:
                pass
        else:
            write_page(page, checks, counts, calibrated=checker.detector is not None)
    ask_about_files(counts, (source, target), forward.languages)


def why_no_links(checker: Checker) -> str:
    """Why words are marked without the links of a trained aligner; nothing if they are not, or if there is none."""
    from rela.filtering.words import shared_aligner

    if checker.detector is None or checker.aligner is not None:
        return ""
    if checker.detector.aligner:
        return "the trained aligner of the calibration is no longer in both folders"
    if shared_aligner(checker.forward, checker.backward) is not None:
        return "the calibration was made without the trained aligner that is in both folders"
    return ""


def fit(
    forward: Translator,
    backward: Translator | None,
    trusted: list[tuple[str, str]],
    domain: str,
    reference: tuple[str, str] | None,
) -> None:
    """Fit the detectors of a model folder: of the model alone and, if there is a reverse model, of both.

    Without a reverse model, the folder keeps its detector of both.
    """
    from rela.filtering.calibration import ENOUGH, TRUSTED
    from rela.filtering.calibration import calibrate as run
    from rela.filtering.detector import load_detectors, save_detectors
    from rela.model.folder import ModelFolderError

    assert forward.folder is not None
    detectors = run(forward, backward, trusted, domain, reference)
    try:
        kept = load_detectors(forward.folder)
    except ModelFolderError:  # damaged, or of an older version
        kept = {}
    save_detectors(forward.folder, kept | detectors)
    for name, detector in detectors.items():
        found = "  ".join(f"{kind} {value:.3f}" for kind, value in detector.auroc.items())
        print(f"{forward.folder} ({name}), {detector.trusted:,} trusted pairs; AUROC on noise kept out: {found}")
    used = detectors["alone"].trusted
    if used < ENOUGH:
        effect = f"about 1 in {used // 5 + 1} good pairs will have the verdict warn, with {TRUSTED:,} pairs 1 in 100"
        print(f"{forward.folder}: thresholds come from every fifth of {used} pairs: {effect}", file=sys.stderr)


def check_on_ray(
    checker: Checker,
    files: tuple[Path, Path],
    out: Path | None,
    format: str,
    workers: int | None,
    shard_lines: int,
    device: str,
) -> None:
    """`rela check` by workers that hold the models of this checker."""
    from rela.commands.ray_jobs import CheckRows, write_on_ray
    from rela.filtering.detector import detector_fingerprint

    reverse = None if checker.backward is None else str(checker.backward.folder)
    detector = None if checker.detector is None else detector_fingerprint(checker.detector)
    links = checker.aligner is not None
    job = CheckRows(str(checker.forward.folder), reverse, detector, format, device, links)
    write_on_ray(job, [job.model, *([reverse] if reverse else [])], list(files), out, workers, shard_lines)


def written(
    checks: Iterator[PairCheck], write: Callable[[str], None], format: str, titles: bool = True
) -> Iterator[PairCheck]:
    """The same checks, each written on its way; `titles` puts the line of titles before a table."""
    if format == "tsv" and titles:
        write("\t".join(COLUMNS))
    for one in checks:
        write(json.dumps(one.row(), ensure_ascii=False) if format == "jsonl" else tsv_row(one))
        yield one


def tsv_row(one: PairCheck) -> str:
    """One pair as a row of the table; flagged words are separated by spaces."""
    flagged = {
        "no_source": [word.word for word in one.target_words or () if word.flagged],
        "untranslated": [word.word for word in one.source_words or () if word.flagged],
    }
    fields = []
    for name in COLUMNS:
        value = " ".join(flagged[name]) if name in flagged else getattr(one, name)
        fields.append("" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value))
    return "\t".join(fields)


def counted(checks: Iterator[PairCheck], counts: Counter[str]) -> Iterator[PairCheck]:
    """The same checks; counts all pairs, those with a verdict (judged), and those whose verdict is warn."""
    for one in checks:
        counts.update(pairs=1, judged=bool(one.verdict), warn=one.verdict == "warn")
        yield one


def ask_about_files(counts: Counter[str], files: tuple[Path, Path], languages: tuple[str, str]) -> None:
    """A question on stderr if nearly all pairs are bad, as they are if the files are swapped or a line is missing."""
    if counts["judged"] >= LEAST_PAIRS and counts["warn"] > MOST_WARNED * counts["judged"]:
        found = f"{counts['warn']:,} of {counts['judged']:,} pairs are worse than 99 % of trusted pairs"
        text = f"is {files[0]} in {languages[0]}, and {files[1]} line by line its translation in {languages[1]}?"
        print(f"{found}: {text}", file=sys.stderr)


def write_page(path: Path, checks: Iterator[PairCheck], counts: Counter[str], calibrated: bool) -> None:
    """The worst pairs as a page; `counts` grow while the checks are read."""
    from rela.report.check_page import worst_first, write_check_page

    worst = worst_first(checks)
    how = (
        "The score is made of two logistic regressions fitted on noise made of trusted pairs."
        if calibrated
        else "The model is not calibrated: the score is minus the log-probability, and there are no thresholds."
    )
    write_check_page(path, worst, counts["pairs"], counts["warn"], how)
