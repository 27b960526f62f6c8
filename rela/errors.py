"""Errors whose reason a user can read and act on."""

from __future__ import annotations

import math
from collections.abc import Iterable


class RunFailed(RuntimeError):
    """A run cannot go on, and the message says why; the command line shows it as one line, without a traceback."""


def check_log_probs(values: Iterable[float]) -> None:
    """End a run whose log-probabilities are not all finite; NaN in attention makes them NaN too."""
    if not all(map(math.isfinite, values)):
        raise RunFailed("a log-probability is no finite number; are the model's weights too large?")


TOOLKIT = ("numpy", "rich", "sacrebleu", "safetensors", "sentencepiece", "typer", "yaml", "zstandard")
"""The modules that the extra `mt` brings."""


def with_extra(error: ImportError) -> str:
    """What an ImportError says and, for a module of the toolkit, the extra that brings it."""
    missing = (error.name or "").partition(".")[0]
    if missing in TOOLKIT and "pip install" not in str(error):
        return f"the translation toolkit needs {missing}: pip install 'rela-attention[mt]'"
    return str(error)
