"""A noisy corpus ranked, and the best of it kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rela.commands.options import Device, ModelFolder, OnForOneFile, RayWorkers, SourceText, TargetText
from rela.commands.outputs import check_outputs, check_outside
from rela.terminal import progress_bars

if TYPE_CHECKING:
    from rela.filtering.combined_scorer import CombinedScorer
    from rela.filtering.score_store import ScoreStore


def filter_pairs(
    model: ModelFolder,
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="Scores as TSV; unfinished ones are kept in OUT.parts.")],
    by: Annotated[
        str, typer.Option(help="Rank by null-rate, log-prob, both, or score: what `rela check --calibrate` fitted.")
    ] = "null-rate",
    reverse: Annotated[Path | None, typer.Option(help="With --by score: model of the other direction.")] = None,
    keep: Annotated[float | None, typer.Option(help="Share of the pairs to keep, such as 0.8.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Worst score to keep.")] = None,
    kept_source: Annotated[
        Path | None, typer.Option(help="Where the source sides of kept pairs go; beside OUT if left out.")
    ] = None,
    kept_target: Annotated[Path | None, typer.Option(help="Where their target sides go.")] = None,
    ranked: Annotated[bool, typer.Option(help="Write the TSV best first.")] = False,
    text: Annotated[bool, typer.Option(help="Put both sentences into the TSV.")] = False,
    page: Annotated[bool, typer.Option(help="Also OUT.html, a sample of the best and worst pairs.")] = False,
    sample: Annotated[int, typer.Option(help="Pairs of each sort on that page.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of that sample.")] = 1,
    device: Device = "auto",
    on: OnForOneFile = None,
    workers: RayWorkers = None,
) -> None:
    """Rank a noisy corpus by null rate and keep the best; an interrupted run goes on where it stopped.

    Example: `rela filter runs/demo/model train.en train.de --keep 0.8 --page --out scores.tsv`;
    on several processes: `torchrun --nproc-per-node 4 -m rela filter …`
    """
    from rela.filtering.filter import filter_corpus
    from rela.filtering.outputs import check_columns, kept_paths, parts_folder, summary_path
    from rela.filtering.ranking import Criterion
    from rela.report.filter_page import write_filter_page

    criterion = Criterion(by, keep, threshold)
    if reverse is not None and by != "score":
        raise ValueError("--reverse adds a model to the combined score; give --by score too")
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
    models = [model, *([reverse] if reverse else [])]
    check_outputs(outputs, [source, target], models)
    check_outside([parts_folder(out)], models)
    store = score_pairs(models, (source, target), parts_folder(out), by == "score", on, workers, device)
    if store is None:
        return
    summary = filter_corpus(store, source, target, out, criterion, ranked=ranked, text=text, kept_files=files)
    if page:
        write_filter_page(store, source, target, out.with_suffix(".html"), summary, sample, seed)
    print(summary)


def score_pairs(
    models: list[Path],
    files: tuple[Path, Path],
    folder: Path,
    combined: bool,
    on: str | None,
    workers: int | None,
    device: str,
) -> ScoreStore | None:
    """The scores of all pairs, in `folder`, by the processes of torchrun or by Ray; None but in the first process.

    `models` are a model and, if there is one, its reverse model; `combined` adds the combined score of their detector.
    """
    from functools import partial

    from rela.commands.ray_jobs import score_on_ray
    from rela.decoding.translate import Translator
    from rela.filtering.combined_scorer import CombinedScorer
    from rela.filtering.score_corpus import score_corpus
    from rela.training.processes import join_processes

    with join_processes(device) as processes, progress_bars() as progress:
        forward, *backward = (Translator.load(model, str(processes.device)) for model in models)
        scorer = CombinedScorer(forward, *backward) if combined else forward
        score = score_corpus if on is None else partial(score_on_ray, on=on, workers=workers, device=device)
        store = score(
            scorer,
            *files,
            folder,
            rank=processes.rank,
            world=processes.world,
            progress=progress if processes.first else None,
        )
        processes.wait()
    if not processes.first:
        return None
    if isinstance(scorer, CombinedScorer):
        ask_about_scores(scorer, store, files)
    return store


def ask_about_scores(scorer: CombinedScorer, store: ScoreStore, files: tuple[Path, Path]) -> None:
    """The question of `rela check` where nearly all pairs are bad, as they are if the files are swapped."""
    from collections import Counter

    from rela.commands.check import ask_about_files

    scores = store.read()
    good = scores["score"][scores["problem"] == 0]
    warned = int((good > scorer.detector.thresholds["warn"]).sum())
    ask_about_files(Counter(judged=len(good), warn=warned), files, scorer.forward.languages)
