"""What is checked before a run: whether the configuration fits the prepared text, and its settings each other."""

from __future__ import annotations

import warnings
from pathlib import Path

from rela.attention.kinds import kind_of
from rela.config import Config
from rela.data.provenance import differing_for_training, missing_text
from rela.data.shards import PreparedCorpus
from rela.training.validation import VALID, validation_texts


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
    check_validation(config)
    if config.data.vocabularies == "separate" and config.model.tied_embeddings == "all":
        raise ValueError('model.tied_embeddings is "all"; wanted "target" or "none" with separate vocabularies')
    kinds = config.model.attention_kinds.values()
    for name in ("threshold", "target_sparsity"):
        if getattr(config.model, name) and all(kind_of(kind).is_distribution for kind in kinds):
            value = getattr(config.model, name)
            raise ValueError(f"model.{name} is {value}, and no attention here has such a thing: {', '.join(kinds)}")
    check_made_from(config, corpora[0])


def check_validation(config: Config) -> None:
    """Refuse settings of validation that could have no effect, and missing text."""
    settings, sets = config.train, validation_texts(config.data)
    if not sets and (settings.patience or settings.bleu_every or settings.best_by != "loss"):
        needing = "train.patience, train.bleu_every and train.best_by"
        raise ValueError(f"{needing} need text to validate with; wanted data.valid")
    if settings.patience and settings.best_by == "loss" and not settings.validate_every:
        raise ValueError("train.patience counts validations by loss; wanted train.validate_every above 0")
    if settings.best_by == "bleu" and not settings.bleu_every:
        raise ValueError("train.best_by is bleu, and train.bleu_every 0; wanted it above 0")
    if settings.best_on not in (names := list(sets) or [VALID]):
        raise ValueError(f"train.best_on is {settings.best_on!r}; wanted {' or '.join(names)}")
    for corpus in sets.values() if settings.bleu_every else ():
        for name in (corpus.source, corpus.target):
            if not (Path(config.data.root) / name).is_file():
                raise ValueError(f"train.bleu_every needs the validation text {Path(config.data.root) / name}")


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
    if settings.schedule == "cosine" and settings.cooldown:
        raise ValueError(f"train.cooldown is {settings.cooldown}; wanted 0 with a cosine, which itself ends at zero")
    if settings.schedule == "cosine" and settings.warmup >= settings.steps:
        limit = f"below train.steps, {settings.steps}: the cosine comes after it"
        raise ValueError(f"train.warmup is {settings.warmup}; wanted {limit}")
