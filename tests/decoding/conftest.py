"""Untrained translators with real subwords: search, batching and text handling do not need a trained model."""

from __future__ import annotations

import pytest
import torch

from rela.config import Config, DecodeConfig, ModelConfig
from rela.data.subwords import EOS, Subwords, train_subwords
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from rela.toy import generate


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Of one to forty words, in no order, one twice, two without words."""
    pairs = [pair.source for pair in generate(12, seed=3)]
    return [*pairs[:5], " ".join(pairs[:4]), "dog", "", *pairs[5:9], "   ", " ".join(pairs[4:6]), pairs[0], *pairs[9:]]


@pytest.fixture(scope="session")
def subwords() -> Subwords:
    return train_subwords((text for pair in generate(300, seed=1) for text in (pair.source, pair.target)), 400)


@pytest.fixture(scope="session")
def make_translator(subwords):
    """A translator with random weights of any kind and size, sure enough of its words that the best is no tie."""
    made = {}

    def make(
        kind: str = "rela-g", width: int = 48, heads: int = 4, layers: int = 2, max_length: int = 160
    ) -> Translator:
        key = kind, width, heads, layers, max_length
        if key not in made:
            torch.manual_seed(4)
            shape = ModelConfig(
                vocabulary_size=400,
                width=width,
                heads=heads,
                encoder_layers=layers,
                decoder_layers=layers,
                feed_forward=2 * width,
                encoder_attention=kind,
                decoder_attention=kind,
                cross_attention=kind,
                tied_embeddings="none",
                max_length=max_length,
            )
            model = Transformer(shape)
            with torch.no_grad():
                model.output.weight *= 3
                model.output.weight[EOS] *= 1.5  # translations end now and then, at different lengths
            decode = DecodeConfig(max_length_ratio=0.7, max_length_extra=3)
            made[key] = Translator(model, subwords, Config(model=shape, decode=decode), "cpu")
        return made[key]

    return make
