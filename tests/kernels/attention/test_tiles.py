"""Tiles follow the typical length of a sentence, not the longest."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention import tiles
from rela.kernels.attention.problem import Problem
from tests.kernels.exactness import DEVICE, packing_of


def test_one_long_sentence_does_not_choose_the_tiles_of_all():
    """Sentences of 30 with one of 200 among them are computed in small tiles, as they are without it."""
    lengths = [30] * 50 + [200]
    q = torch.zeros(1, 2, sum(lengths), 64, dtype=torch.float16, device=DEVICE)
    packing, short = packing_of(lengths), packing_of(lengths, longest=30)
    with_long = Problem(q, q, q, None, None, None, packing, packing, None, 1.0, "relu", False, 0.0)
    without = replace(with_long, queries=short, keys=short)
    assert tiles.forward_tiles(with_long) == tiles.forward_tiles(without)
    assert tiles.key_gradient_tiles(with_long, True) == tiles.key_gradient_tiles(without, True)
    assert tiles.one_pass(with_long)
    alone = replace(with_long, queries=packing_of([1530]), keys=packing_of([1530], longest=200))
    assert tiles.forward_tiles(alone) != tiles.forward_tiles(without)
