"""Which way models translate: two that score the same pairs together must have opposite directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rela.decoding.translate import Translator


def check_opposite(forward: Translator, backward: Translator | None) -> None:
    """Refuse a backward model that is the forward one, or that its config says to be of another direction.

    Such a model reads a translation as text of a language it has not learnt, and its numbers mean nothing.
    """
    if backward is None:
        return
    names = [str(one.folder or "the model") for one in (backward, forward)]
    same_folder = (
        backward.folder is not None and forward.folder is not None and backward.folder.samefile(forward.folder)
    )
    if backward is forward or same_folder:
        raise ValueError(f"{names[0]} is given twice, also as the reverse model; wanted a model of the other direction")
    wanted = forward.languages[::-1]
    if backward.languages != wanted:
        raise ValueError(
            f"the reverse model {names[0]} translates {' to '.join(backward.languages)} (its config.yaml says so); "
            f"wanted {' to '.join(wanted)}, as {names[1]} translates {' to '.join(forward.languages)}"
        )
