"""Word links of a whole text: one model, or two directions made one; lines are read as they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import tee

from rela.alignment.choose import Aligner, AlignmentChoice, choose
from rela.decoding.translate import PairTooLong, Translator
from rela.evaluation.alignment import GoldLinks, Link, symmetrise


def align_corpus(
    forward: Aligner,
    pairs: Iterable[tuple[str, str]],
    backward: Aligner | None = None,
    method: str = "grow-diag-final",
) -> Iterator[frozenset[Link]]:
    """The links (source word, target word) of each pair, in order.

    `backward` is a model of the other direction; its links are turned round and the two sets symmetrised by `method`.
    A pair too long for a model gets no links and a warning.
    """
    models = [forward.translator] + ([] if backward is None else [backward.translator])
    stream = short_enough(pairs, models)
    if backward is None:
        yield from links(forward, stream)
        return
    forward_pairs, backward_pairs = tee(stream)
    turned = ((target, source) for source, target in backward_pairs)
    for one, other in zip(links(forward, forward_pairs), links(backward, turned), strict=True):
        yield symmetrise(one, turn(other), method)


def links(aligner: Aligner, pairs: Iterator[tuple[str, str]]) -> Iterator[frozenset[Link]]:
    sources, targets = tee(pairs)
    return aligner.align((source for source, _ in sources), (target for _, target in targets))


def turn(found: Iterable[Link]) -> frozenset[Link]:
    """The same links with their sides swapped."""
    return frozenset((target, source) for source, target in found)


def short_enough(pairs: Iterable[tuple[str, str]], models: list[Translator]) -> Iterator[tuple[str, str]]:
    """The pairs, with an empty one instead of each that is too long for a model."""
    for line, (source, target) in enumerate(pairs, start=1):
        try:
            models[0].encode_pair(source, target)
            for other in models[1:]:
                other.encode_pair(target, source)
            yield source, target
        except PairTooLong as error:
            warnings.warn(f"line {line} gets no links: {error}", stacklevel=2)
            yield "", ""


def choose_backward(
    translator: Translator, pairs: Iterable[tuple[str, str]], gold: Iterable[GoldLinks], tokenised: bool = False
) -> AlignmentChoice:
    """`choose` for a model of the other direction; pairs and gold are written source first, as for the forward one."""
    turned = [GoldLinks(turn(sentence.sure), turn(sentence.possible)) for sentence in gold]
    return choose(translator, [(target, source) for source, target in pairs], turned, tokenised)
