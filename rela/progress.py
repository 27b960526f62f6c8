"""How long work reports its progress: a function of the stage, the items done and the items in all."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called as progress(stage, done, total); total is None where it is not known."""


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""
