"""Token embeddings with sinusoidal positions (Vaswani et al., 2017, section 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, width: int) -> Tensor:
    """[length, width]: sine in the even columns, cosine in the odd ones, wavelengths from 2π to 10000 · 2π."""
    if torch.get_default_device().type == "meta":  # a shape alone; arange would import PyTorch's compiler there
        return torch.empty(length, width)
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: width // 2])
    return table.float()


class Embedding(nn.Module):
    """Tokens at positions to vectors: √C · table[token] + sinusoid[position], then dropout."""

    positions: Tensor

    def __init__(self, vocabulary_size: int, width: int, max_length: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, width)
        self.scale = width**0.5
        self.dropout = nn.Dropout(dropout)
        # Computed, not learnt: the longest sentence may change without touching a stored model.
        self.register_buffer("positions", sinusoids(max_length, width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table.weight, std=self.table.embedding_dim**-0.5)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[...] tokens and positions to [..., C]."""
        return self.dropout(self.table(tokens) * self.scale + self.positions[positions])
