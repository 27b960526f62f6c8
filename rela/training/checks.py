"""What is checked before a run: whether the configuration fits the prepared text, and its settings each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rela.attention.kinds import kind_of
from rela.config import Config
from rela.data.shards import PreparedCorpus


def check_prepared(config: Config, size: int, corpora: list[PreparedCorpus]) -> None:
    """Refuse a prepared corpus that the configuration does not fit, before any time is spent."""
    if config.data.vocabulary_size != size:
        prepared = f"{config.data.directory} was prepared with {size}"
        raise ValueError(f"data.vocabulary_size is {config.data.vocabulary_size}, and {prepared}")
    longest = 1 + max(max(corpus.longest_source, corpus.longest_target) for corpus in corpora)
    if longest > config.model.max_length:
        wanted = f"at least {longest}, the longest sentence"
        raise ValueError(f"model.max_length is {config.model.max_length}; wanted {wanted}")
    if config.data.valid is None and (config.train.patience or config.train.bleu_every):
        raise ValueError("train.patience and train.bleu_every need text to validate with; wanted data.valid")
    if config.train.patience and not config.train.validate_every:
        raise ValueError("train.patience counts validations by loss; wanted train.validate_every above 0")
    kinds = config.model.attention_kinds.values()
    for name in ("threshold", "target_sparsity"):
        if getattr(config.model, name) and all(kind_of(kind).is_distribution for kind in kinds):
            value = getattr(config.model, name)
            raise ValueError(f"model.{name} is {value}, and no attention here has such a thing: {', '.join(kinds)}")
    if config.train.bleu_every and config.data.valid is not None:
        for name in (config.data.valid.source, config.data.valid.target):
            if not (Path(config.data.root) / name).is_file():
                raise ValueError(f"train.bleu_every needs the validation text {Path(config.data.root) / name}")


def fit_vocabulary(config: Config, size: int) -> Config:
    """The config with the prepared vocabulary's size in its model."""
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary_size=size))
