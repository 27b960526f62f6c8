"""The report's numbers as tables (CSV) and as one JSON file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rela.analysis.flops import break_even_length, flops_table
from rela.analysis.record import TYPES
from rela.files import write_text
from rela.report.measure import ModelReport, Report

Row = dict[str, Any]
WAYS = {"normal": False, "shifted": True}


def summary_rows(report: Report) -> list[Row]:
    """One row a model: the figures one compares first. AERs are fractions; layers and heads count from 1."""
    return [{"model": name, **_summary(model)} for name, model in report.models.items()]


def _summary(model: ModelReport) -> Row:
    row: Row = {}
    for type in TYPES:
        row[f"{type}_attention"] = model.kinds[type]
        row[f"{type}_sparsity"] = model.true[type].sparsity.mean().item()
        row[f"{type}_diversity"] = model.true[type].diversity.mean().item()
    row["null_rate"] = model.true["cross"].null_rate.mean().item()
    row["null_rate_shuffled"] = model.shuffled["cross"].null_rate.mean().item()
    row["sink_mass"] = model.true["cross"].sink_mass.mean().item()
    if model.alignment is not None:
        for way, shifted in WAYS.items():
            scores = model.alignment[shifted]
            layer, head = scores.best_head
            best_layer = min(range(len(scores.layers)), key=lambda i: scores.layers[i].aer)
            row[f"aer_best_head_{way}"] = scores.heads[layer][head].aer
            row[f"best_head_{way}"] = f"{layer + 1}.{head + 1}"
            row[f"aer_best_layer_{way}"] = scores.layers[best_layer].aer
            row[f"best_layer_{way}"] = best_layer + 1
            row[f"aol_{way}"] = scores.average_of_layers
            row[f"aoh_{way}"] = scores.average_of_best_heads
    for kind, by_measure in model.detection.items():
        for measure, value in by_measure.items():
            row[f"auroc_{measure}_{kind}"] = value
    return row


def sparsity_rows(report: Report) -> Iterator[Row]:
    for name, type, layer, model in _places(report):
        yield {"model": name, "attention": type, "layer": layer + 1,
               "sparsity": model.true[type].sparsity[layer].mean().item()}  # fmt: skip


def error_rate_rows(report: Report) -> Iterator[Row]:
    for name, model in report.models.items():
        for way, shifted in WAYS.items() if model.alignment is not None else ():
            scores = model.alignment[shifted]  # type: ignore[index]
            for layer, (whole, best) in enumerate(zip(scores.layers, scores.best_heads, strict=True)):
                head = scores.heads[layer][best]
                yield {"model": name, "rows": way, "layer": layer + 1, "layer_aer": whole.aer,
                       "layer_precision": whole.precision, "layer_recall": whole.recall, "best_head": best + 1,
                       "best_head_aer": head.aer, "best_head_precision": head.precision,
                       "best_head_recall": head.recall, "best_head_links": head.links}  # fmt: skip


def average_error_rows(report: Report) -> Iterator[Row]:
    """Table 5."""
    for name, model in report.models.items():
        if model.alignment is not None:
            row: Row = {"model": name}
            for way, shifted in WAYS.items():
                row[f"{way}_aol"] = 100 * model.alignment[shifted].average_of_layers
                row[f"{way}_aoh"] = 100 * model.alignment[shifted].average_of_best_heads
            yield row


def diversity_rows(report: Report) -> Iterator[Row]:
    for name, model in report.models.items():
        for temperature, by_type in model.diversity.items():
            for type, values in by_type.items():
                for layer, value in enumerate(values.tolist(), start=1):
                    yield {"model": name, "temperature": temperature, "attention": type, "layer": layer,
                           "js_divergence": value}  # fmt: skip


def average_diversity_rows(report: Report) -> Iterator[Row]:
    """Table 6: the mean over layers, by τ."""
    for name, model in report.models.items():
        for temperature, by_type in model.diversity.items():
            yield {"model": name, "temperature": temperature,
                   **{type: values.mean().item() for type, values in by_type.items()}}  # fmt: skip


def null_rate_rows(report: Report) -> Iterator[Row]:
    for name, type, layer, model in _places(report):
        true, shuffled = model.true[type].null_rate[layer], model.shuffled[type].null_rate[layer]
        yield {"model": name, "attention": type, "layer": layer + 1, "true": true.mean().item(),
               "shuffled": shuffled.mean().item(), "variance_over_heads": true.var(unbiased=False).item()}  # fmt: skip


def sink_rows(report: Report) -> Iterator[Row]:
    for name, type, layer, model in _places(report):
        if type != "decoder":  # whose keys begin with <s> and never hold </s>
            yield {"model": name, "attention": type, "layer": layer + 1,
                   "sink_mass": model.true[type].sink_mass[layer].mean().item()}  # fmt: skip


def head_rows(report: Report) -> Iterator[Row]:
    """Every head of every layer."""
    for name, type, layer, model in _places(report):
        true, shuffled = model.true[type], model.shuffled[type]
        for head in range(true.sparsity.size(1)):
            row = {"model": name, "attention": type, "layer": layer + 1, "head": head + 1}
            for measure in ("sparsity", "null_rate", "sink_mass"):
                row[measure] = getattr(true, measure)[layer, head].item()
            row["null_rate_shuffled"] = shuffled.null_rate[layer, head].item()
            for way, shifted in WAYS.items():
                known = type == "cross" and model.alignment is not None
                row[f"aer_{way}"] = model.alignment[shifted].heads[layer][head].aer if known else ""  # type: ignore[index]
            yield row


def null_class_rows(report: Report) -> Iterator[Row]:
    for name, model in report.models.items():
        for word_class, found in model.nulls_by_class.items():
            for layer, rates in enumerate(found.rate.tolist(), start=1):
                for head, rate in enumerate(rates, start=1):
                    yield {"model": name, "after": word_class, "rows": found.rows, "layer": layer, "head": head,
                           "null_rate": rate}  # fmt: skip


def detection_rows(report: Report) -> Iterator[Row]:
    for name, model in report.models.items():
        for kind, by_measure in model.detection.items():
            yield {"model": name, "noise": kind, **{f"auroc_{measure}": value for measure, value in by_measure.items()}}


def pair_rows(report: Report) -> Iterator[Row]:
    for name, model in report.models.items():
        for line, score in enumerate(model.pair_scores, start=1):
            yield {"model": name, "line": line, "null_rate": score.null_rate, "log_prob": score.log_prob}


def flops_rows(report: Report) -> Iterator[Row]:
    """Table 4 for each different size among the models."""
    for heads, width in dict.fromkeys((model.heads, model.width) for model in report.models.values()):
        for row in flops_table((100, 1000), heads, width):
            yield {"heads": heads, "width": width, **row, "break_even_length": break_even_length(heads, width)}


TABLES = {
    "summary": summary_rows,
    "figure3_sparsity": sparsity_rows,
    "table4_flops": flops_rows,
    "figure4_aer": error_rate_rows,
    "table5_aer": average_error_rows,
    "figure5_diversity": diversity_rows,
    "table6_diversity": average_diversity_rows,
    "figure6_null_rate": null_rate_rows,
    "sink": sink_rows,
    "heads": head_rows,
    "null_by_class": null_class_rows,
    "noise": detection_rows,
    "pairs": pair_rows,
}


def numbers(report: Report) -> Row:
    """Settings and every table but the one of single pairs, ready for JSON."""
    tables = {name: list(rows(report)) for name, rows in TABLES.items() if name != "pairs"}
    return {"settings": report.settings, **tables}


def write_tables(report: Report, out: Path) -> list[Path]:
    """Every table that has rows as CSV, and report.json."""
    written = []
    for name, rows in TABLES.items():
        if table := list(rows(report)):
            written.append(write_whole(out / f"{name}.csv", csv_text(table)))
    text = json.dumps(numbers(report), ensure_ascii=False, indent=1, default=str)
    return [*written, write_whole(out / "report.json", text + "\n")]


def csv_text(rows: Sequence[Row]) -> str:
    """Rows as CSV; the columns are those of all rows, in the order in which they appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_whole(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all; its path."""
    write_text(path, text)
    return path


def _places(report: Report) -> Iterator[tuple[str, str, int, ModelReport]]:
    for name, model in report.models.items():
        for type in TYPES:
            for layer in range(len(model.true[type].sparsity)):
                yield name, type, layer, model
