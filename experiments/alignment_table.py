"""Alignment error rates, with confidence intervals, of all aligners that two models provide.

    python -m experiments.alignment_table --forward runs/de-en/model --reverse runs/en-de/model \\
        --source gold.de --target gold.en --gold gold.talp --gold-one-based --tokenised \\
        --links eflomal=eflomal.gdfa --output rows.json

Heads and the trained aligner are those in the model folders (`rela fit-aligner`), made without gold links. Rows with
`uses_gold` did use gold links, to show what is possible. `--links NAME=FILE` also evaluates the links of other tools:
as they are, and without those of a word and a punctuation mark, which `rela align` leaves out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments import programs
from rela.alignment.choose import Aligner, choose, default_choice, load_choice
from rela.alignment.corpus import METHODS, PRODUCT, WordMatrices, symmetrise_matrices, turn, two_matrices
from rela.alignment.joint import load_joint
from rela.alignment.punctuation import of_one_sort
from rela.analysis.links import matrix_links
from rela.data.corpus import read_pairs
from rela.decoding.translate import Translator
from rela.evaluation.alignment import (
    GoldLinks,
    Link,
    alignment_error_rate,
    alignment_interval,
    read_hypotheses,
    read_links,
)
from rela.files import write_text

Pairs = list[tuple[str, str]]


def judge(links: Iterable[frozenset[Link]], gold: Sequence[GoldLinks], resamples: int) -> dict[str, Any]:
    """AER with its interval, precision, recall and number of links."""
    found = list(links)
    low, high = alignment_interval(found, gold, resamples)
    return {**asdict(alignment_error_rate(found, gold)), "low": low, "high": high}


def two_directions(
    name: str,
    forward: WordMatrices,
    backward: WordMatrices | None,
    pairs: Pairs,
    gold: Sequence[GoldLinks],
    resamples: int,
) -> list[dict[str, Any]]:
    """Rows of one kind of aligner: each direction, one direction with itself, and both by every method."""
    started = time.perf_counter()
    there, back = map(list[Tensor], zip(*two_matrices(forward, pairs, backward), strict=True))
    speed = len(pairs) / (time.perf_counter() - started)
    variants: dict[str, list[frozenset[Link]]] = {
        "forward": [matrix_links(one) for one in there],
        "reverse": [turn(matrix_links(one)) for one in back],
        "forward, rows and columns, grow-diag": [symmetrise_matrices(one, one.T, "grow-diag") for one in there],
    }
    for method in METHODS:
        title = f"{method} > {PRODUCT}" if method == "product" else method
        variants[title] = [symmetrise_matrices(one, other, method) for one, other in zip(there, back, strict=True)]
    rows = [
        {"aligner": name, "variant": title, **judge(of_one_sort(links, pairs), gold, resamples)}
        for title, links in variants.items()
    ]
    return [{**row, "pairs_per_second_both": speed} for row in rows]


def possible(
    forward: Translator, pairs: Pairs, gold: Sequence[GoldLinks], tokenised: bool, resamples: int
) -> list[dict[str, Any]]:
    """What one head could do if gold links chose it, and what the mean of the middle layer does."""
    rows = []
    for name, choice in (
        ("head chosen with gold links", choose(forward, pairs, gold, tokenised)),
        ("middle layer, shifted", default_choice(forward.config.model.decoder_layers)),
    ):
        links = Aligner(forward, choice, tokenised).align(*zip(*pairs, strict=True))
        row = {"aligner": name, "variant": f"forward: {choice}", **judge(links, gold, resamples)}
        rows.append({**row, "uses_gold": name.startswith("head")})
    return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("forward", "reverse", "source", "target", "gold"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--gold-one-based", action="store_true")
    parser.add_argument("--gold-flipped", action="store_true")
    parser.add_argument("--tokenised", action="store_true")
    parser.add_argument("--links", action="append", type=programs.named, default=[], metavar="NAME=FILE")
    parser.add_argument("--resamples", type=programs.at_least(1), default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)

    programs.check_output(options.output)
    pairs = list(read_pairs(options.source, options.target, "raise"))
    gold = read_links(options.gold, options.gold_one_based, options.gold_flipped)
    forward, backward = (Translator.load(folder, options.device) for folder in (options.forward, options.reverse))
    rows = []
    for name, file in (text.split("=", 1) for text in options.links):
        links = read_hypotheses(file)
        if len(links) != len(pairs):
            raise ValueError(f"{file} has links of {len(links)} sentences; the text has {len(pairs)}")
        rows.append({"aligner": name, "variant": file, **judge(links, gold, options.resamples)})
        kept = judge(of_one_sort(links, pairs), gold, options.resamples)
        rows.append({"aligner": f"{name}, without links of a word and a mark", "variant": file, **kept})
    rows += possible(forward, pairs, gold, options.tokenised, options.resamples)
    for model in (forward, backward):
        if model.folder is None or load_choice(model.folder) is None:
            raise SystemExit(f"{model.folder} has no choice of heads; run rela fit-aligner first")
    heads = [Aligner(model, None, options.tokenised) for model in (forward, backward)]
    rows += two_directions("heads", heads[0], heads[1], pairs, gold, options.resamples)
    trained = load_joint(forward, backward, options.tokenised)
    if trained is not None:
        rows += two_directions("fitted", trained, None, pairs, gold, options.resamples)
    for row in rows:
        figures = f"{100 * row['aer']:6.2f} ({100 * row['low']:.2f} to {100 * row['high']:.2f})"
        shares = f"P {100 * row['precision']:.1f}  R {100 * row['recall']:.1f}"
        print(f"{figures}  {shares}  {row['aligner']}: {row['variant']}")
    if options.output:
        choices = {str(model.folder): str(load_choice(model.folder)) for model in (forward, backward) if model.folder}
        write_text(options.output, json.dumps({"choices": choices, "sentences": len(pairs), "rows": rows}, indent=1))
    return rows


if __name__ == "__main__":
    sys.exit(programs.run(main))
