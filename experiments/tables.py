"""The tables of the pages of results, each a function from the rows to Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from experiments import paper, speeds
from experiments.cells import NOT_RUN, Cell, Cells, Figure, markdown, signed
from experiments.rows import Row

MAIN = "en-de"
"""The task of Table 1 and section 5.2."""
TYPES = ("encoder", "decoder", "cross")
OURS = {"relu2-g": "ReLU² with the gated norm (ours)"}
"""Settings beside those of Table 1."""
LANGUAGES = {"de": "De", "en": "En", "fi": "Fi", "fr": "Fr", "ro": "Ro", "zh": "Zh"}
Load = Callable[[str], Cells]
"""The cells of an experiment by its name."""


def bleu(test: str) -> Figure:
    """BLEU on a test set."""
    return lambda row: row["scores"][test]["bleu"]["value"] if test in row["scores"] else None


def validation_nll(row: Row) -> float | None:
    """Of the last validation, in nats a token."""
    found: list[float] = row["training"]["validation"]["nll"]
    return found[-1] if found else None


def measured(row: Row, *names: str) -> Any:
    """A measure of section 5.2 by its names, such as ("sparsity", "cross"); None where it was not taken."""
    value: Any = row["analysis"]
    for name in names:
        value = None if value is None else value.get(name)  # older rows have fewer measures
    return value


def over_layers(*names: str) -> Figure:
    """The mean over layers of a measure."""
    return lambda row: None if (found := measured(row, *names)) is None else statistics.fmean(found)


def at_layer(layer: int, *names: str) -> Figure:
    """A measure at one layer, from 0."""
    return lambda row: None if (found := measured(row, *names)) is None else found[layer]


def error_rate(*names: str) -> Figure:
    """An alignment error rate in percent, such as ("shifted", "aol")."""
    return lambda row: measured(row, "aer", *names)


def paper_rows(cells: Cells) -> dict[int, Cell]:
    """The settings of the paper's Table 1 by their numbers."""
    numbered = {cell.paper_row: cell for cell in cells.values()}
    return {number: numbered[number] for number in paper.TABLE_1}


def named_settings(cells: Cells) -> list[tuple[str, Cell]]:
    """The settings of Table 1 and ours beside them, with their names."""
    published = [(paper.TABLE_1[number][0], cell) for number, cell in paper_rows(cells).items()]
    return [*published, *own_settings(cells)]


def own_settings(cells: Cells) -> list[tuple[str, Cell]]:
    """The settings that the paper does not have, with their names."""
    return [(name, cells[MAIN, variation]) for variation, name in OURS.items() if (MAIN, variation) in cells]


def test_sets(cells: Sequence[Cell]) -> list[str]:
    """The test sets of the rows, in their order."""
    return list(dict.fromkeys(test for cell in cells for row in cell.finished for test in row["scores"]))


def table_1(load: Load) -> str:
    """BLEU of the settings; in brackets the difference from softmax, ours from ours and theirs from theirs."""
    cells = load("table1")
    softmax, theirs = cells[MAIN, "softmax"], paper.TABLE_1[1][1]
    tests = test_sets(list(cells.values())) or ["europarl", "newstest2014"]
    lines = []
    for number, cell in paper_rows(cells).items():
        name, score = paper.TABLE_1[number]
        published = "failed" if score is None else f"{score:.1f}"
        if score is not None and theirs is not None and number > 1:
            published += f" ({signed(score - theirs, 1)})"
        ours = [cell.against(softmax, bleu(test)) for test in tests]
        lines.append([str(number), name, published, *ours, cell.against(softmax, validation_nll, 3), cell.count])
    for name, cell in own_settings(cells):
        ours = [cell.against(softmax, bleu(test)) for test in tests]
        lines.append(["–", name, "–", *ours, cell.against(softmax, validation_nll, 3), cell.count])
    return markdown(["row", "attention", "paper, WMT14", *tests, "validation nll", "runs"], lines)


def table_2(load: Load) -> str:
    """Parameters, and training and decoding speed relative to softmax."""
    cells = load("table1")
    lines = []
    for kind, (parameters, training, decoding) in paper.TABLE_2.items():
        count = cells[MAIN, kind].mean(lambda row: row["parameters"])
        trains, decodes = speeds.training(kind), speeds.decoding(kind)
        lines.append(
            [
                paper.NAMES[kind],
                f"{parameters:.2f}",
                f"{training:.2f}×",
                f"{decoding:.2f}×",
                NOT_RUN if count is None else f"{count / 1e6:.2f}",
                NOT_RUN if trains is None else f"{trains.against_softmax:.2f}×",
                NOT_RUN if decodes is None else f"{decodes:.2f}×",
                NOT_RUN if trains is None else f"{trains.tokens_per_second / 1000:.0f}",
                NOT_RUN if trains is None else f"{trains.peak_gib:.1f}",
            ]
        )
    relative = [
        f"{whose}: {what}" for whose in ("paper", "ours") for what in ("parameters (M)", "training", "decoding")
    ]
    return markdown(["attention", *relative, "thousand target tokens/s in training", "peak GiB"], lines)


def table_3(load: Load) -> str:
    """BLEU on more language pairs."""
    cells = load("table3")
    lines = []
    for task in dict.fromkeys([*(task for task, _ in cells), *paper.TABLE_3]):
        theirs = paper.TABLE_3.get(task)
        published = (
            ["–"] * 3 if theirs is None else [f"{theirs[0]:.1f}", f"{theirs[1]:.1f}", signed(theirs[1] - theirs[0], 1)]
        )
        pair = "→".join(LANGUAGES[language] for language in task.split("-"))
        if (task, "softmax") not in cells:
            lines.append([pair, *published, "–", NOT_RUN, NOT_RUN, "–", "–"])
            continue
        softmax, rela = cells[task, "softmax"], cells[task, "rela-g"]
        for test in test_sets([softmax, rela]) or ["–"]:
            figure = bleu(test)
            mine, other = rela.mean(figure), softmax.mean(figure)
            difference = "–" if mine is None or other is None else signed(mine - other)
            ours = [test, softmax.text(figure), rela.text(figure), difference, f"{softmax.count}, {rela.count}"]
            lines.append([pair, *published, *ours])
    head = [
        "pair",
        "paper: softmax",
        "ReLA-g",
        "difference",
        "test set",
        "ours: softmax",
        "ReLA-g",
        "difference",
        "runs",
    ]
    return markdown(head, lines)


def table_5(load: Load) -> str:
    """AER averaged over layers: of layer attention (AoL) and of the best heads (AoH), the paper's in brackets."""
    cells = load("table1")
    lines = []
    for kind, published in paper.TABLE_5.items():
        cell = cells[MAIN, kind]
        columns = [(way, name) for way in ("normal", "shifted") for name in ("aol", "aoh")]
        ours = [cell.text(error_rate(way, name)) for way, name in columns]
        both = [f"{own} ({theirs:.2f})" for own, theirs in zip(ours, published, strict=True)]
        lines.append([paper.NAMES[kind], *both, cell.analysed_count])
    return markdown(["attention", "normal AoL", "normal AoH", "shifted AoL", "shifted AoH", "runs"], lines)


def alignment(load: Load) -> str:
    """AER in percent of the best head and of the best layer, for every setting of Table 1."""
    columns = [(way, best) for best in ("best_head", "best_layer") for way in ("normal", "shifted")]
    lines = []
    for name, cell in named_settings(load("table1")):
        ours = [cell.text(error_rate(way, best, "aer")) for way, best in columns]
        lines.append([name, *ours, cell.analysed_count])
    head = ["attention", "best head, normal", "best head, shifted", "best layer, normal", "best layer, shifted", "runs"]
    return markdown(head, lines)


def attention(load: Load) -> str:
    """Sparsity, null rate, and how well the null rate tells true from shuffled pairs, for every setting of Table 1."""
    lines = []
    for name, cell in named_settings(load("table1")):
        sparsity = [cell.text(over_layers("sparsity", type), 3) for type in TYPES]
        nulls = [cell.text(over_layers(measure, "cross"), 3) for measure in ("null_rate", "null_rate_shuffled")]
        others = [cell.text(null_rate_auroc, 3), cell.text(over_layers("sink_mass", "cross"), 3)]
        lines.append([name, *sparsity, *nulls, *others, cell.analysed_count])
    head = ["attention", "sparsity: encoder", "decoder", "cross", "null rate of cross attention", "on shuffled pairs"]
    return markdown([*head, "AUROC of the null rate", "attention on `</s>`", "runs"], lines)


def null_rate_auroc(row: Row) -> float | None:
    """How well the null rate finds shuffled pairs; nothing where no attention is ever null."""
    analysis = row["analysis"]
    silent = analysis is None or not any(analysis["null_rate_shuffled"]["cross"])
    return None if silent else analysis["auroc_shuffled"]["null_rate"]


def null_rate_by_layer(load: Load) -> str:
    """ReLA-g's null rate in cross attention on true and on shuffled pairs, layer by layer (Figure 6)."""
    cell = load("table1")[MAIN, "rela-g"]
    layers = max((len(row["analysis"]["null_rate"]["cross"]) for row in cell.analysed), default=0)
    if not layers:
        return NOT_RUN
    lines = []
    for name, measure in (("true pairs", "null_rate"), ("shuffled pairs", "null_rate_shuffled")):
        lines.append([name, *(cell.text(at_layer(i, measure, "cross"), 3) for i in range(layers))])
    for pairs in ("true", "shuffled"):
        for tokens in ("probable", "improbable"):
            figures = [at_layer(i, "null_rate_by_probability", pairs, tokens) for i in range(layers)]
            lines.append([f"{pairs} pairs, {tokens} tokens", *(cell.text(figure, 3) for figure in figures)])
    return markdown(["null rate, cross attention", *(f"layer {i + 1}" for i in range(layers))], lines)


def table_6(load: Load) -> str:
    """Head diversity, the paper's in brackets."""
    cells = load("table1")
    lines = []
    for (kind, temperature), published in paper.TABLE_6.items():
        cell = cells[MAIN, kind]
        ours = [cell.text(over_layers("diversity", temperature, type)) for type in TYPES]
        both = [f"{own} ({theirs:.2f})" for own, theirs in zip(ours, published, strict=True)]
        lines.append([paper.NAMES[kind], temperature, *both, cell.analysed_count])
    return markdown(["attention", "τ", *TYPES, "runs"], lines)


def variations(load: Load, experiment: str) -> str:
    """Any grid: its variations beside softmax and ReLA-g of Table 1 or 3, in brackets the difference from softmax."""
    own, main = load(experiment), {**load("table1"), **load("table3")}
    lines: list[list[str]] = []
    tests: list[str] = []
    for task in dict.fromkeys(task for task, _ in own):
        base = {name: cell for (of, name), cell in main.items() if of == task and name in ("softmax", "rela-g")}
        cells = {paper.NAMES[name]: cell for name, cell in base.items()}
        cells |= {name: cell for (of, name), cell in own.items() if of == task}
        tests = tests or test_sets(list(cells.values())) or ["europarl", "newstest2014"]
        softmax = next(iter(cells.values()))
        for name, cell in cells.items():
            scores = [cell.against(softmax, bleu(test)) for test in tests]
            sparsity = [cell.text(over_layers("sparsity", type)) for type in TYPES]
            nulls = [cell.text(over_layers(measure, "cross"), 3) for measure in ("null_rate", "null_rate_shuffled")]
            aer = cell.text(error_rate("shifted", "best_head", "aer"))
            line = [task, name, *scores, cell.against(softmax, validation_nll, 3), aer, *sparsity, *nulls]
            line += [cell.count, cell.analysed_count]
            lines.append(line)
    head = ["task", "variation", *tests, "validation nll", "AER, best head, shifted", "sparsity: encoder", "decoder"]
    return markdown([*head, "cross", "null rate", "on shuffled pairs", "runs", "analysed"], lines)


TABLES: dict[str, Callable[[Load], str]] = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-5": table_5,
    "alignment": alignment,
    "attention": attention,
    "null-rate": null_rate_by_layer,
    "table-6": table_6,
}
"""By the name of their place in a page; `grid NAME` there is `variations` of a grid."""
