"""The whole report: `analyse` measures, draws every figure as PNG and SVG, and writes tables and an index.html."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from rela.alignment.choose import default_choice
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks
from rela.filtering.noise import Pair
from rela.plots.heads import heads_of_layer, heads_of_pairs, small_multiples
from rela.plots.layers import (
    diversity_by_layer,
    error_rate_by_layer,
    null_rate_by_layer,
    sink_by_layer,
    sparsity_by_layer,
)
from rela.plots.noise import detection_by_noise
from rela.plots.style import save_figure
from rela.progress import Progress
from rela.report.measure import ModelReport, Report, measure
from rela.report.page import Picture, write_page
from rela.report.tables import write_tables

QUALITY_COLUMNS = 2


def analyse(
    translators: Mapping[str, Translator],
    pairs: Sequence[Pair],
    gold: Sequence[GoldLinks] | None,
    out: str | Path,
    *,
    seed: int = 1,
    examples: int = 3,
    noise: Mapping[str, Sequence[Pair]] | None = None,
    gold_pairs: Sequence[Pair] | None = None,
    gold_tokenised: bool = False,
    word_classes: Callable[[str], str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compare models on sentence pairs and write every figure and table of section 5.2 and an index.html to `out`.

    The arguments are those of `rela.report.measure.measure`.
    """
    report = measure(
        translators, pairs, gold, seed=seed, examples=examples, noise=noise, gold_pairs=gold_pairs,
        gold_tokenised=gold_tokenised, word_classes=word_classes, settings=settings, progress=progress,
    )  # fmt: skip
    write_report(report, out, progress)
    return report


def write_report(report: Report, out: str | Path, progress: Progress | None = None) -> list[Picture]:
    """Tables, pictures and page of a report that was measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tables(report, out)
    pictures = draw_report(report, out, progress)
    write_page(report, pictures, out)
    return pictures


def draw_report(report: Report, out: Path, progress: Progress | None = None) -> list[Picture]:
    """Draw and save every figure of section 5.2 that the report has numbers for."""
    drawn = []
    for picture, axes in figures(report):
        save_figure(axes, out / picture.file)
        drawn.append(picture)
        if progress is not None:
            progress("pictures", len(drawn), None)
    return drawn


def figures(report: Report) -> Iterator[tuple[Picture, Axes]]:
    """One figure after the other, so that only one is held at a time."""
    models = report.models
    true, shuffled = {n: m.true for n, m in models.items()}, {n: m.shuffled for n, m in models.items()}
    yield Picture("figure3_sparsity", "sparsity", "Sparsity rate by layer."), sparsity_by_layer(true)[0]
    aligned = {name: model.alignment for name, model in models.items() if model.alignment is not None}
    if aligned:
        caption = "Alignment error rate by layer: solid the best head, dashed the layer attention."
        yield Picture("figure4_aer", "aer", caption), error_rate_by_layer(aligned)[0]
    yield Picture("figure5_diversity", "diversity", "Head diversity by layer, τ = 1."), diversity_by_layer(true)[0]
    caption = "Null rate by layer: solid on true pairs, dashed on shuffled ones."
    yield Picture("figure6_null_rate", "nulls", caption), null_rate_by_layer(true, shuffled)[0]
    yield Picture("sink", "sink", "Share of attention on </s> by layer."), sink_by_layer(true)[0]
    detection = {name: model.detection for name, model in models.items()}
    yield Picture("noise", "noise", "AUROC of finding noisy pairs, by kind of noise."), detection_by_noise(detection)
    for number, (name, model) in enumerate(models.items(), start=1):
        yield from example_figures(name, f"{number}_{file_name(name)}", model)


def example_figures(name: str, stem: str, model: ModelReport) -> Iterator[tuple[Picture, Axes]]:
    """The heads of one layer for each example, all heads for the first, and one head on good and bad pairs."""
    layer = busiest_layer(model)
    for example in model.examples:
        title = f"{name}, line {example.line + 1}, layer {layer + 1} of cross attention"
        axes = heads_of_layer(example.true["cross"], layer, gold=example.gold, title=title)[0]
        yield Picture(f"figure7_{stem}_line{example.line + 1}", "examples", f"{title}."), axes
    if not model.examples:
        return
    first = model.examples[0]
    for type in ("encoder", "decoder", "cross"):
        title = f"{name}, line {first.line + 1}: all heads of {type} attention"
        axes = small_multiples(first.true[type], title)[0][0]
        yield Picture(f"heads_{stem}_{type}", "examples", f"{title}."), axes
    rise = model.shuffled["cross"].null_rate - model.true["cross"].null_rate  # [L, H]
    if bool(model.shuffled["cross"].null_rate.any()):
        layer, head = divmod(int(rise.argmax()), rise.size(1))
        shown = model.examples[:QUALITY_COLUMNS]
        records = [e.true["cross"] for e in shown] + [e.shuffled["cross"] for e in shown]
        notes = ["true pair,"] * len(shown) + ["shuffled pair,"] * len(shown)
        title = f"{name}: the head whose null rate rises most on shuffled pairs"
        axes = heads_of_pairs(records, layer, head, len(shown), title, notes)[0]
        yield Picture(f"figure10_{stem}", "examples", f"{title}; true pairs above, shuffled ones below."), axes


def busiest_layer(model: ModelReport) -> int:
    """The cross attention layer with the most null attention; where there is none, the one that aligns best or the middle one."""
    by_layer = model.true["cross"].null_rate.mean(dim=-1)
    if bool(by_layer.any()):
        return int(by_layer.argmax())
    if model.alignment is None:
        return default_choice(len(by_layer)).layer
    rates = [[score.aer for score in scores.layers] for scores in model.alignment.values()]
    return min(range(len(by_layer)), key=lambda layer: min(way[layer] for way in rates))


def file_name(name: str) -> str:
    """A model's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:40].strip("-.") or "model"
