"""Untrained models of any kind with real subwords, in memory or as folders, and small corpora to train others on."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from rela.alignment.joint import JointAligner, JointModule
from rela.config import Config, CorpusConfig, DataConfig, ModelConfig
from rela.data.subwords import Subwords, train_subwords
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from rela.toy import generate, split, write_corpus

LAYERS, HEADS = 2, 2
BACK = ("de", "en")
"""The languages of a model of the other direction."""


@cache
def subwords() -> Subwords:
    return train_subwords((text for pair in generate(200, seed=1) for text in (pair.source, pair.target)), 300)


@cache
def tiny_translator(
    kind: str = "rela-g", seed: int = 1, max_length: int = 120, languages: tuple[str, str] = ("en", "de")
) -> Translator:
    """Scores of some size, so that rela-g has rows that look at nothing and log-probabilities differ."""
    torch.manual_seed(seed)
    shape = ModelConfig(
        vocabulary_size=300,
        width=24,
        heads=HEADS,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        feed_forward=32,
        encoder_attention=kind,
        decoder_attention=kind,
        cross_attention=kind,
        threshold=0.1 if kind == "rela-g" else 0.0,
        max_length=max_length,
    )
    data = DataConfig(source_language=languages[0], target_language=languages[1])
    return Translator(Transformer(shape), subwords(), Config(model=shape, data=data), "cpu")


def tiny_folder(path, kind: str = "rela-g", seed: int = 1, languages: tuple[str, str] = ("en", "de")) -> Translator:
    """The same, saved and loaded."""
    tiny_translator(kind, seed, languages=languages).save(path)
    return Translator.load(path, "cpu")


def tiny_joint(forward: Translator, backward: Translator, seed: int = 3) -> JointAligner:
    """An aligner of two models that was not trained."""
    torch.manual_seed(seed)
    module = JointModule(forward.config.model.width, backward.config.model.width)
    assert module.neighbours is not None
    torch.nn.init.normal_(module.neighbours.second.weight)  # zeros correct nothing
    return JointAligner(forward, backward, module)


def toy_pairs(count: int, seed: int = 5) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in generate(count, seed)]


def toy_corpus(folder: Path, train: int, valid: int = 0, **options: Any) -> DataConfig:
    """Write pairs of the embedded corpus to a folder; the configuration that prepares them, with these options."""
    train_pairs, valid_pairs, _ = split(train, valid, 0, seed=5)
    write_corpus(folder, {"train": train_pairs} | ({"valid": valid_pairs} if valid else {}))
    return DataConfig(
        root=str(folder),
        train=(CorpusConfig("train.en", "train.de"),),
        valid=CorpusConfig("valid.en", "valid.de") if valid else None,
        directory=str(folder / "prepared"),
        **options,
    )
