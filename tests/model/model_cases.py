"""Small Transformers and sentence pairs for the tests beside this file."""

from __future__ import annotations

import torch
from torch import Tensor

from rela.config import ModelConfig
from rela.data.batching import Batch, StaticShape, pack
from rela.model.transformer import Transformer

V = 37


def small(kind: str = "rela-g", **options) -> ModelConfig:
    places = {f"{place}_attention": kind for place in ("encoder", "decoder", "cross")}
    shape = {
        "vocabulary_size": V,
        "width": 24,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "feed_forward": 40,
        "max_length": 40,
    }
    return ModelConfig(**{**places, **shape, **options})


def make(kind: str = "rela-g", seed: int = 0, **options) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(small(kind, **options)).eval()


def random_pairs(count: int, seed: int = 0, longest: int = 11) -> list[tuple[list[int], list[int]]]:
    generator = torch.Generator().manual_seed(seed)

    def ids() -> list[int]:
        length = int(torch.randint(1, longest + 1, (), generator=generator))
        return torch.randint(4, V, (length,), generator=generator).tolist()

    return [(ids(), ids()) for _ in range(count)]


def inputs(batch: Batch) -> tuple:
    return batch.inputs


def hidden_states(model: Transformer, pairs: list, static: StaticShape | None = None) -> list[Tensor]:
    """The decoder's states of each pair, [T, C]."""
    batch = pack(pairs, static)
    states = model(*inputs(batch))
    bounds = batch.target_packing.cu_seqlens.tolist()
    return [states[bounds[i] : bounds[i + 1]] for i in range(len(pairs))]
