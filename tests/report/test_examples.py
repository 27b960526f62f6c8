"""Examples of a report can be read, and show the layer and head worth seeing."""

import pytest
import torch

from rela.report.examples import choose_examples, head_of_largest_rise, most_null_layer
from rela.report.measure import measure
from rela.report.parallel_text import ParallelText
from tests.tiny_models import tiny_translator, toy_pairs


def test_examples_are_readable_and_always_as_many_as_there_can_be():
    pairs = [("a " * 40, "b " * 40), ("a b c d e f", "a b c d e f"), ("a", "b"), ("a b c d e", "a b c d e")]
    assert choose_examples(pairs, 2, 1) == [1, 3]
    assert choose_examples(pairs, 3, 1) == [1, 2, 3]
    assert choose_examples(pairs, 9, 1) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="examples is -1"):
        choose_examples(pairs, -1, 1)


def test_layer_and_head_are_those_of_the_null_rates():
    report = measure({kind: tiny_translator(kind) for kind in ("rela-g", "softmax")}, ParallelText(toy_pairs(5)))
    model = report.models["rela-g"]
    assert most_null_layer(model) == int(model.true["cross"].null_rate.mean(-1).argmax())
    rise = model.shuffled["cross"].null_rate - model.true["cross"].null_rate
    layer, head = head_of_largest_rise(model)
    assert rise[layer, head] == torch.max(rise)
    assert most_null_layer(report.models["softmax"]) == 0, "no null attention and no gold links: the middle one of two"
    assert head_of_largest_rise(report.models["softmax"]) is None
