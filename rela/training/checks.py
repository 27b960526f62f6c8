"""What is checked before a run: whether the configuration fits the prepared text, and its settings each other."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

from rela.attention.kinds import kind_of
from rela.config import Config
from rela.data.provenance import differing_for_training, missing_text
from rela.data.shards import PreparedCorpus


def check_prepared(config: Config, size: int, corpora: list[PreparedCorpus]) -> None:
    """Refuse a prepared corpus that the configuration does not fit, before any time is spent."""
    check_schedule(config)
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
    check_made_from(config, corpora[0])


def check_made_from(config: Config, corpus: PreparedCorpus) -> None:
    """Refuse a corpus that was prepared with other settings or from other text than the configuration says."""
    if difference := differing_for_training(corpus.meta, config.data):
        advice = "prepare it again with --force, or choose another data.directory"
        raise ValueError(f"{corpus.directory} was prepared otherwise: {difference}; {advice}")
    if missing := missing_text(config.data):
        compared = f"so it is not compared with what {corpus.directory} was made from"
        warnings.warn(f"{missing[0]} is not there, {compared}", stacklevel=2)
    if corpus.fingerprint is None:
        unknown = "has no checksums of its ids, as older versions wrote it; they are taken as they are"
        warnings.warn(f"{corpus.directory} {unknown}", stacklevel=2)


def check_schedule(config: Config) -> None:
    """Refuse a schedule of which a part would never come."""
    settings = config.train
    if settings.cooldown > settings.steps:
        raise ValueError(f"train.cooldown is {settings.cooldown}; wanted at most train.steps, {settings.steps}")


def fit_vocabulary(config: Config, size: int) -> Config:
    """The config with the prepared vocabulary's size in its model."""
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary_size=size))
