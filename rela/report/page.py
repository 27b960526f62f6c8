"""The report's index.html: what was measured, in plain words, beside the pictures and tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rela.report.measure import Report
from rela.report.tables import TABLES, Row, write_whole
from rela.report.web_page import command, heading, link, page, paragraph, picture, table


@dataclass(frozen=True)
class Picture:
    """A figure that was written as `file`.png and `file`.svg."""

    file: str
    section: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One question of the report: how it is answered, and which table and single command answer it."""

    key: str
    title: str
    text: str
    table: str = ""
    plot: str = ""


SECTIONS = (
    Section("sparsity", "How sparse is attention? (Figure 3)",
            "The share of attention weights that are exactly zero, among the pairs of words that may look at each "
            "other at all, averaged over the heads of each layer. Softmax gives a zero only where a weight is too small for "
            "a 32-bit number, that is where its score lies more than a hundred below the row's largest.", "", "sparsity"),
    Section("aer", "Does cross attention align words? (Figure 4, Table 5)",
            "Each target word is linked to the source word it weighs most, and the links are compared with gold links: "
            "the alignment error rate, lower is better. Normal attention reads the step that writes the word, shifted "
            "attention the step that has the word as its input. The layer attention is the mean over heads. AoL is the "
            "mean over layers for layer attention, AoH for the best head of each layer, in per cent.", "table5_aer", "aer"),
    Section("diversity", "Do heads differ? (Figure 5, Table 6)",
            "The generalised Jensen–Shannon divergence between the heads of a layer: 0 when all heads look alike, the "
            "logarithm of the number of heads when no two look at the same word. Weights that are no distribution "
            "become one by a softmax over weights to the power of τ (temperature); a head that looks at nothing counts "
            "as looking at a word of its own.", "table6_diversity", "diversity"),
    Section("nulls", "When do heads look at nothing? (Figure 6)",
            "The share of words for which all weights of a head are zero, averaged over the heads of each layer. "
            "Dashed: the same sources with the targets of other pairs, which are no translations. If null attention "
            "means something, the dashed lines of cross attention lie above the solid ones. Kinds whose weights sum "
            "to one are always at 0.", "", "null-rate"),
    Section("sink", "Is </s> used as a place to look at nothing?",
            "The share of each word's attention that rests on the end-of-sentence symbol. Softmax has to put its "
            "attention somewhere; a rectifier can put it nowhere.", "", "sink"),
    Section("noise", "Does the null rate find bad sentence pairs?",
            "Clean pairs are mixed with pairs made bad on purpose, and all are ranked by null rate, by the model's "
            "log-probability for each subword, and by the sum of both ranks. AUROC is the probability that a bad pair "
            "ranks below a clean one: 0.5 is chance, 1 is perfect.", "noise", "noise"),
    Section("examples", "What single heads do (Figures 7 to 10)",
            "Rows are target words, columns source words. Colour is scaled by each head's own largest weight, white is "
            "a weight of exactly zero, and a hatched row is a word for which the head looks at nothing.", "", "heads"),
    Section("flops", "What it costs on paper (Table 4)",
            "Floating point operations from scores to output for sequences of 100 and 1000 tokens, and the length from "
            "which ReLA-g needs fewer than softmax.", "table4_flops"),
)  # fmt: skip

SUMMARY_COLUMNS = {
    "model": "model",
    "cross_sparsity": "sparsity (cross)",
    "cross_diversity": "diversity (cross)",
    "null_rate": "null rate, true pairs",
    "null_rate_shuffled": "null rate, shuffled",
    "sink_mass": "attention on </s>",
    "aer_best_head_normal": "AER best head, normal",
    "aer_best_head_shifted": "AER best head, shifted",
    "aer_best_layer_shifted": "AER best layer, shifted",
}


def write_page(report: Report, pictures: Sequence[Picture], out: Path) -> Path:
    """Write index.html, which shows the pictures that lie beside it."""
    return write_whole(out / "index.html", page("What attention does", page_parts(report, pictures)))


def page_parts(report: Report, pictures: Sequence[Picture]) -> Iterator[str]:
    """The page, part by part."""
    settings = report.settings
    names = ", ".join(report.models)
    yield paragraph(
        f"{len(report.models)} model{'s' if len(report.models) > 1 else ''} ({names}) on {settings.get('pairs', 0):,} "
        "sentence pairs by forced decoding. Layers and heads count from 1. Every number is in report.json and in the "
        "CSV files below."
    )
    if settings.get("command"):
        yield command(str(settings["command"]))
    rows = [{column: row[column] for column in SUMMARY_COLUMNS if column in row} for row in report.table()]
    yield table(rows, SUMMARY_COLUMNS)
    filled = {name: rows for name, function in TABLES.items() if name != "pairs" and (rows := list(function(report)))}
    for section in SECTIONS:
        own = [item for item in pictures if item.section == section.key]
        if own or section.table in filled:
            yield from section_parts(section, own, filled.get(section.table, []), settings)
    yield heading("All tables")
    files = [*(f"{name}.csv" for name in [*filled, "pairs"]), "report.json"]
    yield f"<ul>{''.join(f'<li>{link(name, name)}</li>' for name in files)}</ul>"


def section_parts(
    section: Section, pictures: Sequence[Picture], rows: list[Row], settings: dict[str, Any]
) -> Iterator[str]:
    """One question: text, pictures, table, command."""
    yield heading(section.title)
    yield paragraph(section.text)
    for item in pictures:
        yield picture(f"{item.file}.png", item.caption, f"{item.file}.svg")
    if rows:
        yield table(rows)
    if section.plot:
        yield command(plot_command(section.plot, settings))


def plot_command(figure: str, settings: dict[str, Any]) -> str:
    """The command that draws one figure alone."""
    models = [known["folder"] or name for name, known in settings.get("models", {}).items()]
    words = ["rela", "plot", figure, *models, str(settings.get("source", "SRC")),
             str(settings.get("target", "TGT"))]  # fmt: skip
    if figure == "aer":
        words += ["--gold", str(settings.get("gold_file", "GOLD"))] + ["--gold-one-based"] * bool(
            settings.get("one_based")
        )
    return shlex.join([*words, "--out", figure])
