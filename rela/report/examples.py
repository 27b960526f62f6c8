"""Which sentence pairs, layers and heads of them a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rela.alignment.choose import default_choice
from rela.filtering.noise import Pair
from rela.report.pictures import Selection
from rela.report.results import Example, ModelReport, Report

READABLE = (5, 20)
"""A sentence of so many words makes a readable picture."""


def choose_examples(pairs: Sequence[Pair], count: int, seed: int) -> list[int]:
    """The lines to show, from 0: a seeded choice among the pairs whose sides are short enough to read."""
    if count < 0:
        raise ValueError(f"examples is {count}; wanted at least 0")
    low, high = READABLE
    lengths = [[len(side.split()) for side in pair] for pair in pairs]
    readable = [i for i, sides in enumerate(lengths) if low <= min(sides) and max(sides) <= high]
    others = sorted(set(range(len(pairs))) - set(readable), key=lambda i: (max(lengths[i]), i))
    chosen = Random(seed).sample(readable, min(count, len(readable)))
    return sorted(chosen + others[: min(count, len(pairs)) - len(chosen)])


def find_example(report: Report, selection: Selection) -> Example:
    """The example of the model and line selected."""
    examples = report.models[selection.model].examples
    return next(example for example in examples if example.line == selection.line - 1)


def most_null_layer(model: ModelReport) -> int:
    """The cross attention layer with the most null attention, from 0.

    Where there is none: the layer that aligns best, or without gold links the middle one.
    """
    by_layer = model.true["cross"].null_rate.mean(dim=-1)  # [L]
    if bool(by_layer.any()):
        return int(by_layer.argmax())
    if model.alignment is None:
        return default_choice(len(by_layer)).layer
    rates = [[score.aer for score in scores.layers] for scores in model.alignment.values()]
    return min(range(len(by_layer)), key=lambda layer: min(way[layer] for way in rates))


def head_of_largest_rise(model: ModelReport) -> tuple[int, int] | None:
    """(layer, head), from 0, of the largest rise of null rate from true to shuffled pairs; None without null rows."""
    shuffled = model.shuffled["cross"].null_rate  # [L, H]
    if not bool(shuffled.any()):
        return None
    rise = shuffled - model.true["cross"].null_rate
    layer, head = divmod(int(rise.argmax()), rise.size(1))
    return layer, head
