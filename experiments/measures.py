"""The measurements of a trained model: scores of translations, and the attention measures of section 5.2."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.grid import ROOT, AnalysisText, Gold, Task
from rela.analysis.capture import capture
from rela.analysis.links import AlignmentByHead
from rela.analysis.nulls import null_rows
from rela.data.corpus import read_lines, read_pairs
from rela.decoding.translate import Translator
from rela.evaluation.link_files import read_links
from rela.evaluation.scores import bleu, chrf
from rela.report.measure import ModelReport, measure
from rela.report.parallel_text import ParallelText
from rela.report.word_classes import load_word_classes

WAYS = {"normal": False, "shifted": True}
PROBABLE = 0.5
"""A target token is probable if the model gives it at least this probability."""


def scores(translator: Translator, task: Task, data: Path, limit: int | None = None) -> dict[str, Any]:
    """BLEU and chrF of each test set of a task, with their signatures."""
    found = {}
    for name, test in task.tests.items():
        sources = list(islice(read_lines(data / test.source), limit))
        references = list(islice(read_lines(data / test.target), limit))
        translations = translator.translate(sources)
        by_metric = {"bleu": bleu(translations, references), "chrf": chrf(translations, references)}
        found[name] = {"sentences": len(sources)} | {
            metric: {"value": round(score.value, 4), "signature": score.signature}
            for metric, score in by_metric.items()
        }
    return found


def attention(
    translator: Translator, text: AnalysisText, gold: Gold | None, data: Path, limit: int | None = None
) -> dict[str, Any]:
    """Sparsity, null rates, diversity and alignment of a model's attention, by type and layer."""
    count = text.pairs if limit is None else min(limit, text.pairs)
    pairs = list(islice(read_pairs(data / text.source, data / text.target, "raise"), count))
    links, gold_pairs = None, None
    if gold is not None:
        links = read_links(data / gold.links, gold.one_based, gold.flip)[:limit]
        gold_pairs = gold_text(gold, data)[:limit]
    tokenised = gold is not None and gold.tokenised
    measured = ParallelText(pairs, links, gold_pairs, gold_tokenised=tokenised, noise={})
    word_classes = load_word_classes(ROOT / text.word_classes) if text.word_classes else None
    report = measure({"model": translator}, measured, examples=0, word_classes=word_classes)
    by_probability = {
        "true": null_rate_by_probability(translator, pairs),
        "shuffled": null_rate_by_probability(translator, measured.shuffled),
    }
    return {
        "pairs": len(pairs),
        "gold": None if links is None else len(links),
        **numbers(report.models["model"]),
        "null_rate_by_probability": by_probability,
    }


def null_rate_by_probability(translator: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Null rate of cross attention by layer, apart for tokens the model finds probable and for the others."""
    sources, targets = zip(*pairs, strict=True)
    scored = translator.score(sources, targets)
    nulls, probable = [], []
    for records, score in zip(capture(translator, pairs, ("cross",)), scored, strict=True):
        nulls.append(null_rows(records["cross"]).double().mean(dim=1).cpu())  # [L, T]
        probable.append(torch.tensor(score.log_probs) >= log(PROBABLE))  # [T]
    rates, chosen = torch.cat(nulls, dim=1), torch.cat(probable)
    found: dict[str, Any] = {"tokens": chosen.numel(), "probable_tokens": int(chosen.sum())}
    for name, tokens in (("probable", chosen), ("improbable", ~chosen)):
        found[name] = rounded(rates[:, tokens].mean(dim=1)) if tokens.any() else None
    return found


def gold_text(gold: Gold, data: Path) -> list[tuple[str, str]]:
    """The sentence pairs of gold links, respelled as the training text is."""

    def respelled(line: str) -> str:
        for old, new in gold.respell.items():
            line = line.replace(old, new)
        return line

    return [
        (respelled(source), respelled(target))
        for source, target in read_pairs(data / gold.source, data / gold.target, "raise")
    ]


def numbers(report: ModelReport) -> dict[str, Any]:
    """What a row keeps of a report: figures by layer, means over heads; AER by layer and head, in percent."""
    true, shuffled = report.true, report.shuffled
    return {
        "sparsity": {type: by_layer(summary.sparsity) for type, summary in true.items()},
        "null_rate": {type: by_layer(summary.null_rate) for type, summary in true.items()},
        "null_rate_shuffled": {type: by_layer(summary.null_rate) for type, summary in shuffled.items()},
        "null_rate_variance": {
            type: rounded(summary.null_rate.var(-1, unbiased=False)) for type, summary in true.items()
        },
        "sink_mass": {type: by_layer(summary.sink_mass) for type, summary in true.items() if type != "decoder"},
        "diversity": {
            f"{temperature:g}": {type: rounded(values) for type, values in by_type.items()}
            for temperature, by_type in report.diversity.items()
        },
        "null_rate_after": {
            name: {"rows": found.rows, "rate": by_layer(found.rate)} for name, found in report.nulls_by_class.items()
        },
        "auroc_shuffled": {name: round(value, 6) for name, value in report.detection["shuffled"].items()},
        "aer": None
        if report.alignment is None
        else {way: error_rates(report.alignment[shifted]) for way, shifted in WAYS.items()},
    }


def error_rates(alignment: AlignmentByHead) -> dict[str, Any]:
    """Alignment error rates in percent; AoL and AoH are those of Table 5, layers and heads count from 1."""
    layer, head = alignment.best_head
    layers = [100 * score.aer for score in alignment.layers]
    best_layer = min(range(len(layers)), key=layers.__getitem__)
    return {
        "best_head": {"aer": percent(alignment.heads[layer][head].aer), "layer": layer + 1, "head": head + 1},
        "best_layer": {"aer": round(layers[best_layer], 4), "layer": best_layer + 1},
        "aol": percent(alignment.average_of_layers),
        "aoh": percent(alignment.average_of_best_heads),
        "layers": [round(value, 4) for value in layers],
        "heads": [[percent(score.aer) for score in row] for row in alignment.heads],
    }


def by_layer(values: Tensor) -> list[float]:
    """The mean over heads of [L, H]."""
    return rounded(values.double().mean(dim=-1))


def rounded(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.double().tolist()]


def percent(rate: float) -> float:
    return round(100 * rate, 4)
