"""How long work reports its progress: a function of the stage, the items done and the items in all."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far a stage of work is: `total` is None where it is not known, `note` is shown behind the numbers."""

    def __call__(self, stage: str, done: int, total: int | None, note: str = "") -> None: ...


def no_progress(stage: str, done: int, total: int | None, note: str = "") -> None:
    """Report nothing."""
