"""Records made by hand or at random, of any kind."""

import pytest
import torch

from rela.analysis.record import AttentionRecord

ROW_SUMS_TO_ONE = ("softmax", "sparsemax")


def build_record(weights, kind="rela-g", type="cross", queries=None, keys=None):
    """A record of nested lists or a tensor; every token a word of its own and </s> last unless given."""
    weights = torch.as_tensor(weights, dtype=torch.float32)
    T, S = weights.shape[-2:]
    queries = tuple(queries or [*(f"▁y{t}" for t in range(T - 1)), "</s>"])
    keys = tuple(keys or [*(f"▁x{s}" for s in range(S - 1)), "</s>"])
    return AttentionRecord(kind, type, weights, queries, keys)


def build_random_record(seed, kind="rela-g", type="cross", layers=3, heads=5, queries=7, keys=6):
    """A record of random scores passed through the kind's weights; about half of rela-g's weights are zero."""
    scores = torch.randn(layers, heads, queries, keys, generator=torch.Generator().manual_seed(seed))
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if type == "decoder":
        allowed = allowed.tril(keys - queries)
    if kind in ROW_SUMS_TO_ONE:
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    else:
        weights = scores.relu().masked_fill(~allowed, 0.0)
    return build_record(weights, kind, type)


@pytest.fixture(scope="session")
def make_record():
    return build_record


@pytest.fixture(scope="session")
def random_record():
    return build_random_record
