"""Whether a prepared corpus is the one that a configuration describes: its settings, its files and their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rela.config import DataConfig
from rela.data.inputs import Corpus, corpora_of, differing, located
from rela.files import checksum

SETTINGS = (
    "vocabulary_size",
    "subword_model",
    "vocabularies",
    "vocabulary_sample",
    "character_coverage",
    "max_tokens",
    "max_ratio",
    "on_bad_line",
    "shard_pairs",
    "seed",
)
"""The fields of a DataConfig that decide what is written."""
NEWER = {"subword_model": "bpe", "vocabularies": "joint"}
"""Those that older versions did not write down, and what they stood at."""


def settings_of(config: DataConfig) -> dict[str, Any]:
    """The settings of a configuration that decide what is written."""
    return {name: getattr(config, name) for name in SETTINGS}


def differing_settings(before: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first setting that was another, in words; None if there is none."""
    for name, value in wanted.items():
        old = before.get(name, NEWER.get(name))
        if old != value:
            return f"{name} was {old}, now {value}"
    return None


def differing_for_training(meta: dict[str, Any], config: DataConfig) -> str | None:
    """How what was prepared differs from what a configuration wants to train with, in words; None if it does not.

    The vocabulary is compared where the configuration names one, the training text always, the validation text where
    there is one. Text that is no longer there is known by its name; text from the standard input cannot be compared.
    """
    if difference := differing_settings(meta["settings"], settings_of(config)):
        return difference
    subwords = Path(config.root) / config.subwords
    if config.subwords and subwords.exists() and checksum(subwords) != meta["vocabulary"]["sha256"]:
        return f"its vocabulary is not {subwords}"
    wanted = training_corpora(config)
    splits = {corpus.split for corpus in wanted}
    return differing([old for old in meta["inputs"] if old["split"] in splits], wanted)


def training_corpora(config: DataConfig) -> list[Corpus]:
    """The corpora that training uses; the paths of text from the standard input name nothing that is there."""
    root, nowhere = Path(config.root), Path(config.directory) / ".partial"
    return [located(split, corpus, root, nowhere) for split, corpus in corpora_of(config) if split != "test"]


def missing_text(config: DataConfig) -> list[Path]:
    """The files of a configuration that are not there, so that nobody can compare them with what was prepared."""
    corpora = training_corpora(config)
    return [path for corpus in corpora for path in (corpus.source, corpus.target) if not path.exists()]
