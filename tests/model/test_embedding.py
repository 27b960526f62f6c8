"""Token embeddings and positions."""

from __future__ import annotations

import math

import pytest
import torch

from rela.model.embedding import Embedding, sinusoids


def test_positions_are_the_sinusoids_of_vaswani_et_al():
    table = sinusoids(50, 12)
    for position, pair in [(0, 0), (1, 0), (7, 3), (49, 5)]:
        angle = position / 10_000 ** (2 * pair / 12)
        assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoids(5, 7).shape == (5, 7)


def test_embedding_scales_by_the_root_of_the_width():
    embedding = Embedding(9, 16, 20, 0.0)
    tokens, positions = torch.tensor([3, 8]), torch.tensor([0, 19])
    wanted = 4.0 * embedding.table.weight[tokens] + sinusoids(20, 16)[positions]
    torch.testing.assert_close(embedding(tokens, positions), wanted)
