"""The rows of the report's tables: one function a table, a report in, rows out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rela.analysis.flops import break_even_length, flops_table
from rela.analysis.record import TYPES
from rela.report.results import ModelReport, Report

Row = dict[str, Any]
WAYS = {"normal": False, "shifted": True}


def summary_rows(report: Report) -> Iterator[Row]:
    """The main measures of each model. AERs are fractions; layers and heads count from 1."""
    for name, model in report.models.items():
        yield {"model": name, **_summary(model)}


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
    """Figure 3: the mean over heads of each layer."""
    for name, type, layer, model in _layers(report):
        yield {
            "model": name,
            "attention": type,
            "layer": layer + 1,
            "sparsity": model.true[type].sparsity[layer].mean().item(),
        }


def error_rate_rows(report: Report) -> Iterator[Row]:
    """Figure 4: the layer attention and the best head of each layer."""
    for name, alignment in report.alignment.items():
        for way, shifted in WAYS.items():
            scores = alignment[shifted]
            for layer, (whole, best) in enumerate(zip(scores.layers, scores.best_heads, strict=True)):
                head = scores.heads[layer][best]
                yield {
                    "model": name,
                    "rows": way,
                    "layer": layer + 1,
                    "layer_aer": whole.aer,
                    "layer_precision": whole.precision,
                    "layer_recall": whole.recall,
                    "best_head": best + 1,
                    "best_head_aer": head.aer,
                    "best_head_precision": head.precision,
                    "best_head_recall": head.recall,
                    "best_head_links": head.links,
                }


def average_error_rows(report: Report) -> Iterator[Row]:
    """Table 5: the mean over layers, as fractions like every AER in these tables."""
    for name, alignment in report.alignment.items():
        row: Row = {"model": name}
        for way, shifted in WAYS.items():
            row[f"{way}_aol"] = alignment[shifted].average_of_layers
            row[f"{way}_aoh"] = alignment[shifted].average_of_best_heads
        yield row


def diversity_rows(report: Report) -> Iterator[Row]:
    """Figure 5, at every τ."""
    for name, model in report.models.items():
        for temperature, by_type in model.diversity.items():
            for type, values in by_type.items():
                for layer, value in enumerate(values.tolist(), start=1):
                    yield {
                        "model": name,
                        "temperature": temperature,
                        "attention": type,
                        "layer": layer,
                        "js_divergence": value,
                    }


def average_diversity_rows(report: Report) -> Iterator[Row]:
    """Table 6: the mean over layers, by τ."""
    for name, model in report.models.items():
        for temperature, by_type in model.diversity.items():
            yield {
                "model": name,
                "temperature": temperature,
                **{type: values.mean().item() for type, values in by_type.items()},
            }


def null_rate_rows(report: Report) -> Iterator[Row]:
    """Figure 6: the mean over heads of each layer, on true and on shuffled pairs."""
    for name, type, layer, model in _layers(report):
        true, shuffled = model.true[type].null_rate[layer], model.shuffled[type].null_rate[layer]
        yield {
            "model": name,
            "attention": type,
            "layer": layer + 1,
            "true": true.mean().item(),
            "shuffled": shuffled.mean().item(),
            "variance_over_heads": true.var(unbiased=False).item(),
        }


def sink_rows(report: Report) -> Iterator[Row]:
    """The share of attention on </s>, the mean over heads of each layer."""
    for name, type, layer, model in _layers(report):
        if type != "decoder":  # whose keys begin with <s> and never hold </s>
            yield {
                "model": name,
                "attention": type,
                "layer": layer + 1,
                "sink_mass": model.true[type].sink_mass[layer].mean().item(),
            }


def head_rows(report: Report) -> Iterator[Row]:
    """Every head of every layer."""
    for name, type, layer, model in _layers(report):
        true, shuffled = model.true[type], model.shuffled[type]
        for head in range(true.sparsity.size(1)):
            row = {"model": name, "attention": type, "layer": layer + 1, "head": head + 1}
            for measure in ("sparsity", "null_rate", "sink_mass"):
                row[measure] = getattr(true, measure)[layer, head].item()
            row["null_rate_shuffled"] = shuffled.null_rate[layer, head].item()
            alignment = model.alignment if type == "cross" else None
            for way, is_shifted in WAYS.items():
                row[f"aer_{way}"] = "" if alignment is None else alignment[is_shifted].heads[layer][head].aer
            yield row


def null_class_rows(report: Report) -> Iterator[Row]:
    """The null rate of each head of cross attention after words of each class."""
    for name, model in report.models.items():
        for word_class, found in model.nulls_by_class.items():
            for layer, rates in enumerate(found.rate.tolist(), start=1):
                for head, rate in enumerate(rates, start=1):
                    yield {
                        "model": name,
                        "after": word_class,
                        "rows": found.rows,
                        "layer": layer,
                        "head": head,
                        "null_rate": rate,
                    }


def detection_rows(report: Report) -> Iterator[Row]:
    """AUROC by kind of noise."""
    for name, model in report.models.items():
        for kind, by_measure in model.detection.items():
            yield {"model": name, "noise": kind, **{f"auroc_{measure}": value for measure, value in by_measure.items()}}


def pair_rows(report: Report) -> Iterator[Row]:
    """The scores of each sentence pair."""
    for name, model in report.models.items():
        for line, score in model.pair_scores.items():
            yield {"model": name, "line": line + 1, "null_rate": score.null_rate, "log_prob": score.log_prob}


def flops_rows(report: Report) -> Iterator[Row]:
    """Table 4 for each different size among the models."""
    for heads, width in dict.fromkeys((model.heads, model.width) for model in report.models.values()):
        for row in flops_table((100, 1000), heads, width):
            yield {"heads": heads, "width": width, **row, "break_even_length": break_even_length(heads, width)}


def _layers(report: Report) -> Iterator[tuple[str, str, int, ModelReport]]:
    """(model name, attention type, layer from 0, model) of every layer."""
    for name, model in report.models.items():
        for type in TYPES:
            for layer in range(len(model.true[type].sparsity)):
                yield name, type, layer, model
