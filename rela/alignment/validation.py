"""The choice of heads that a training ends with, on its own validation text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from rela.alignment.agreement import choose_alone
from rela.alignment.choose import CHOICE, AlignmentChoice, save_choice
from rela.config import Config
from rela.data.corpus import read_pairs
from rela.decoding.translate import Translator

PAIRS = 200
"""Of the validation text; a hundred are enough on the embedded corpus."""


def choose_on_validation(folder: Path, config: Config) -> AlignmentChoice | None:
    """The heads chosen for a finished model, now in its folder; None where there is a choice, or no text for one."""
    valid = config.data.valid
    if (folder / CHOICE).exists() or valid is None or "-" in (valid.source, valid.target):
        return None
    root = Path(config.data.root)
    try:
        translator = Translator.load(folder, config.train.device)
        choice = choose_alone(translator, pairs_of(root / valid.source, root / valid.target), limit=PAIRS)
    except (OSError, ValueError) as error:  # the model is finished all the same
        warnings.warn(f"no heads are chosen for word links, which rela fit-aligner does: {error}", stacklevel=2)
        return None
    save_choice(folder, choice)
    return choice


def pairs_of(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The validation pairs; lines that cannot be read were counted when the text was prepared."""
    return iter(read_pairs(source, target, "skip"))
