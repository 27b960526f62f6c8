"""Which way models translate: two that score the same pairs together must have opposite directions.

And which way pairs are written: what is learnt from pairs that are the wrong way round is kept, and means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rela.decoding.translate import PairTooLong, Translator

PAIRS = 64
"""Pairs that are looked at to see which way they are written."""
MARGIN = 1.0
"""Nats a token that pairs must be likelier the other way round; for the models of models/ it is 5 to 7."""


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


def check_order(translator: Translator, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse pairs that a model finds much likelier with their sides exchanged. Each fits into it as it is written."""
    kept = list(islice((pair for pair in pairs if is_readable(translator, *pair[::-1])), PAIRS))
    if not kept:
        return
    sources, targets = zip(*kept, strict=True)
    written, exchanged = (mean_log_prob(translator, *sides) for sides in ((sources, targets), (targets, sources)))
    if exchanged > written + MARGIN:
        source, target = translator.languages
        raise ValueError(
            f"the pairs are likelier the other way round, by {exchanged - written:.1f} nats a token; "
            f"wanted the text in {source} first, then that in {target}"
        )


def is_readable(translator: Translator, source: str, target: str) -> bool:
    """Whether a pair is short enough for a model."""
    try:
        translator.encode_pair(source, target)
    except PairTooLong:
        return False
    return True


def mean_log_prob(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> float:
    """The log-probability of a target token, in the mean over all of them."""
    found = [value for scored in translator.score(sources, targets) for value in scored.log_probs]
    return sum(found) / len(found)
