"""Records and summaries made by hand, so that every drawn number is known."""

import pytest
import torch

from rela.analysis.accumulator import AttentionSummary
from rela.analysis.record import AttentionRecord

PIECES = ("▁Das", "▁Haus", "boot", "▁,", "</s>")
KEYS = ("▁The", "▁house", "boat", "▁<b>", "▁$5$", "</s>")


def build_record(weights=None, type="cross", queries=PIECES, keys=KEYS, kind="rela-g"):
    """Two layers and three heads over pieces; head 1 of layer 0 is null at ▁Das and at both pieces of Hausboot."""
    if weights is None:
        weights = torch.rand(2, 3, len(queries), len(keys), generator=torch.Generator().manual_seed(1)) + 0.1
        weights[0, 1, :3] = 0
    return AttentionRecord(kind, type, weights, tuple(queries), tuple(keys))


def build_summaries(seed, layers=4, heads=3):
    """{"a": …, "b": …}, each with three types of random rates."""
    generator = torch.Generator().manual_seed(seed)

    def rates(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    return {
        name: {
            type: AttentionSummary(
                "rela-g", type, 5, 40, rates(layers, heads), rates(layers, heads), rates(layers, heads), rates(layers)
            )
            for type in ("encoder", "decoder", "cross")
        }
        for name in ("a", "b")
    }


@pytest.fixture
def make_record():
    return build_record


@pytest.fixture
def make_summaries():
    return build_summaries
