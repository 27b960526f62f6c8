"""The registry of figures and tables: what the report writes, what `rela plot` draws and what the page says.

A figure is one record: its key (`rela plot KEY`), its title and sentence on the page, the parts of a report it needs,
the function that draws it, and the table of its numbers. A table without a picture is one record too. Drawing functions
import matplotlib when they are called, so that numbers can be had without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rela.report import rows
from rela.report.head_pictures import (
    draw_heads,
    draw_overview,
    draw_shuffled,
    heads_pictures,
    overview_pictures,
    shuffled_pictures,
)
from rela.report.pictures import Picture, Selection
from rela.report.results import (
    ALIGNMENT,
    CLASSES,
    DETECTION,
    DIVERSITY,
    EXAMPLES,
    SHUFFLED,
    TRUE,
    Report,
)
from rela.report.rows import Row

if TYPE_CHECKING:
    from rela.plots.style import Drawing

Rows = Callable[[Report], Iterable[Row]]


@dataclass(frozen=True)
class Table:
    """A table without a picture of its own."""

    key: str
    """The name of its CSV file."""
    rows: Rows
    needs: tuple[str, ...] = ()
    title: str = ""
    """On the page; a table without a title is only written as CSV, or shown below its figure."""
    sentence: str = ""
    below: str = ""
    """The key of the figure that the page shows it below."""
    in_json: bool = True
    """Whether report.json holds it too."""


@dataclass(frozen=True)
class Figure:
    """A picture, or several of one sort, and the table of their numbers."""

    key: str
    """What `rela plot` calls it."""
    title: str
    sentence: str
    needs: tuple[str, ...]
    draw: Callable[[Report, Selection], Drawing]
    file: str = ""
    """The name of its picture and of its CSV file, without ending; of figures that are one picture."""
    caption: str = ""
    rows: Rows | None = None
    table_needs: tuple[str, ...] = ()
    """What the table needs, if that is more than the picture needs."""
    table_shown: bool = False
    """Whether the page shows the table below the picture."""
    several: Callable[[Report], Iterator[Picture]] | None = None
    """The pictures of a figure that are one for each model or example."""
    plotted: bool = True
    """Whether `rela plot` draws it."""

    def pictures(self, report: Report) -> Iterable[Picture]:
        """The pictures that the report shows."""
        return [Picture(self.file, self.caption)] if self.several is None else self.several(report)


def draw_sparsity(report: Report, selection: Selection) -> Drawing:
    from rela.plots.layers import sparsity_by_layer

    return sparsity_by_layer(report.true)[0]


def draw_error_rate(report: Report, selection: Selection) -> Drawing:
    from rela.plots.layers import error_rate_by_layer

    return error_rate_by_layer(report.alignment, kinds=report.kinds)[0]


def draw_diversity(report: Report, selection: Selection) -> Drawing:
    from rela.plots.layers import diversity_by_layer

    return diversity_by_layer(report.true)[0]


def draw_null_rate(report: Report, selection: Selection) -> Drawing:
    from rela.plots.layers import null_rate_by_layer

    return null_rate_by_layer(report.true, report.shuffled)[0]


def draw_sink(report: Report, selection: Selection) -> Drawing:
    from rela.plots.layers import sink_by_layer

    return sink_by_layer(report.true)[0]


def draw_noise(report: Report, selection: Selection) -> Drawing:
    from rela.plots.noise import detection_by_noise

    return detection_by_noise({name: model.detection for name, model in report.models.items()}, kinds=report.kinds)


REGISTRY: tuple[Figure | Table, ...] = (
    Table("summary", rows.summary_rows, (TRUE, SHUFFLED, DETECTION)),
    Figure(
        "sparsity",
        "How sparse is attention? (Figure 3)",
        "The share of attention weights that are exactly zero, among the pairs of words that may look at each other at "
        "all, averaged over the heads of each layer. A weight counts as zero if it is exactly zero in the arithmetic "
        "the model computes with, softmax's underflow included: in 32-bit numbers softmax gives a zero where a score "
        "lies more than a hundred below the row's largest.",
        (TRUE,),
        draw_sparsity,
        "figure3_sparsity",
        "Sparsity rate by layer.",
        rows.sparsity_rows,
    ),
    Table(
        "table4_flops",
        rows.flops_rows,
        title="What it costs on paper (Table 4)",
        sentence="Floating point operations from scores to output for sequences of 100 and 1000 tokens, and the length "
        "from which ReLA-g needs fewer than softmax.",
    ),
    Figure(
        "aer",
        "Does cross attention align words? (Figure 4, Table 5)",
        "Each target word is linked to the source word it weighs most, and the links are compared with gold links: the "
        "alignment error rate, lower is better. Normal attention reads the step that writes the word, shifted "
        "attention the step that has the word as its input. The layer attention is the mean over heads. AoL is the "
        "mean over layers for layer attention, AoH for the best head of each layer.",
        (ALIGNMENT,),
        draw_error_rate,
        "figure4_aer",
        "Alignment error rate by layer: solid the best head, dashed the layer attention.",
        rows.error_rate_rows,
    ),
    Table("table5_aer", rows.average_error_rows, (ALIGNMENT,), below="aer"),
    Figure(
        "diversity",
        "Do heads differ? (Figure 5, Table 6)",
        "The generalised Jensen–Shannon divergence between the heads of a layer: 0 when all heads look alike, the "
        "logarithm of the number of heads when no two look at the same word. Weights that are no distribution become "
        "one by a softmax over weights to the power of τ (temperature); a head that looks at nothing counts as looking "
        "at a word of its own.",
        (TRUE,),
        draw_diversity,
        "figure5_diversity",
        "Head diversity by layer, τ = 1.",
        rows.diversity_rows,
        (DIVERSITY,),
    ),
    Table("table6_diversity", rows.average_diversity_rows, (DIVERSITY,), below="diversity"),
    Figure(
        "null-rate",
        "When do heads look at nothing? (Figure 6)",
        "The share of words for which all weights of a head are zero, averaged over the heads of each layer. Dashed: "
        "the same sources with the targets of other pairs, which are no translations. If null attention means "
        "something, the dashed lines of cross attention lie above the solid ones. Kinds whose weights sum to one are "
        "always at 0.",
        (TRUE, SHUFFLED),
        draw_null_rate,
        "figure6_null_rate",
        "Null rate by layer: solid on true pairs, dashed on shuffled ones.",
        rows.null_rate_rows,
    ),
    Figure(
        "sink",
        "Is </s> used as a place to look at nothing?",
        "The share of each word's attention that rests on the end-of-sentence symbol. Softmax has to put its attention "
        "somewhere; a rectifier can put it nowhere.",
        (TRUE,),
        draw_sink,
        "sink",
        "Share of attention on </s> by layer.",
        rows.sink_rows,
    ),
    Table("heads", rows.head_rows, (TRUE, SHUFFLED)),
    Table("null_by_class", rows.null_class_rows, (CLASSES,)),
    Figure(
        "noise",
        "Does the null rate find bad sentence pairs?",
        "Clean pairs are mixed with pairs made bad on purpose, and all are ranked by null rate, by the model's "
        "log-probability for each subword, and by the sum of both ranks. AUROC is the probability that a bad pair "
        "ranks below a clean one: 0.5 is chance, 1 is perfect. The shuffled pairs are those of Figure 6.",
        (DETECTION,),
        draw_noise,
        "noise",
        "AUROC of finding noisy pairs, by kind of noise.",
        rows.detection_rows,
        table_shown=True,
    ),
    Table("pairs", rows.pair_rows, (DETECTION,), in_json=False),
    Figure(
        "heads",
        "What single heads do (Figures 7 to 9)",
        "Rows are target words, columns source words. Colour is scaled by each head's own largest weight, a weight of "
        "exactly zero is left empty, and a hatched row is a word for which the head looks at nothing.",
        (EXAMPLES,),
        draw_heads,
        several=heads_pictures,
    ),
    Figure(
        "overview",
        "All heads of a model",
        "Every head as a small matrix, layers down and heads across, in the same colours; below it the share of words "
        "for which it looks at nothing.",
        (EXAMPLES,),
        draw_overview,
        several=overview_pictures,
    ),
    Figure(
        "shuffled-pairs",
        "One head on good and bad pairs (Figure 10)",
        "The head whose null rate rises most from true to shuffled pairs: true pairs above, the same sources with "
        "targets of other pairs below.",
        (TRUE, SHUFFLED, EXAMPLES),
        draw_shuffled,
        several=shuffled_pictures,
        plotted=False,
    ),
)
FIGURES = {entry.key: entry for entry in REGISTRY if isinstance(entry, Figure)}
"""Figures by key, in the order of the page."""
TABLES = {entry.key if isinstance(entry, Table) else entry.file: entry for entry in REGISTRY if entry.rows is not None}
"""Tables by the name of their CSV file, those of figures included."""
PLOTTED = tuple(key for key, figure in FIGURES.items() if figure.plotted)
"""The figures that `rela plot` draws."""


def table_rows(name: str, report: Report) -> list[Row]:
    """The rows of one of TABLES; none where the report lacks what the table needs."""
    entry = TABLES[name]
    needs = entry.needs if isinstance(entry, Table) else entry.table_needs or entry.needs
    return list(entry.rows(report)) if entry.rows is not None and report.has(needs) else []


def find_figure(key: str) -> Figure:
    """The figure that `rela plot` calls so."""
    if key not in PLOTTED:
        raise ValueError(f"there is no figure {key!r}; wanted one of {', '.join(PLOTTED)}")
    return FIGURES[key]
