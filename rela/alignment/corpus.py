"""Word links of a whole text: one model, or two directions made one; lines are read as they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import chain, islice, tee
from typing import Protocol

from torch import Tensor

from rela.alignment.agreement import PAIRS, choose_alone, choose_together
from rela.alignment.choose import Aligner, AlignmentChoice, choose
from rela.alignment.joint import JointAligner
from rela.alignment.punctuation import of_one_sort
from rela.analysis.links import matrix_links
from rela.data.corpus import is_empty
from rela.decoding.directions import check_opposite
from rela.decoding.translate import PairTooLong, Translator
from rela.evaluation.alignment import GoldLinks, Link, symmetrise
from rela.evaluation.symmetrise import SYMMETRISATIONS

TWO_DIRECTIONS = "grow-diag-final-and"
"""How two models' links become one set, unless told otherwise."""
METHODS = (*SYMMETRISATIONS, "product")
PRODUCT = 0.1


class WordMatrices(Protocol):
    """Gives word weights: heads (`rela.alignment.choose.Aligner`) or a trained aligner (`rela.alignment.fitted`)."""

    translator: Translator
    tokenised: bool

    def matrices(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Tensor]:
        """[T, S], the weight of each source word for each target word, of each pair in order."""
        ...


def align_corpus(
    forward: WordMatrices,
    pairs: Iterable[tuple[str, str]],
    backward: WordMatrices | None = None,
    method: str | None = None,
) -> Iterator[frozenset[Link]]:
    """The links (source word, target word) of each pair, in order.

    A `JointAligner` (rela.alignment.joint) is both directions in one. Otherwise `backward` is a model of the other
    direction; its links are turned round and the two sets symmetrised by `method`, `grow-diag-final-and` if left out.
    With one model and a `method`, the two sets are the links of its rows (each target word's best source word) and of
    its columns (each source word's best target word); without, its rows' links alone. A pair too long for a model gets
    no links and a warning. A word and a punctuation mark are not linked (rela.alignment.punctuation).
    """
    pairs, texts = tee(pairs)
    yield from of_one_sort(all_links(forward, pairs, backward, method), texts)


def all_links(
    forward: WordMatrices, pairs: Iterable[tuple[str, str]], backward: WordMatrices | None, method: str | None
) -> Iterator[frozenset[Link]]:
    """The links of `align_corpus`, and those of a word and a punctuation mark."""
    if backward is None and method is None and not isinstance(forward, JointAligner):
        stream = short_enough(pairs, [forward.translator])
        yield from map(matrix_links, forward.matrices(stream))
        return
    for one, other in two_matrices(forward, pairs, backward):
        yield symmetrise_matrices(one, other, method or TWO_DIRECTIONS)


def two_matrices(
    forward: WordMatrices, pairs: Iterable[tuple[str, str]], backward: WordMatrices | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The weights [T, S] and [S, T] of each pair: of two models, or of one model's rows and of its columns."""
    if isinstance(forward, JointAligner):
        yield from forward.two_matrices(short_enough(pairs, [forward.translator, forward.backward]))
        return
    if backward is None:
        for matrix in forward.matrices(short_enough(pairs, [forward.translator])):
            yield matrix, matrix.T
        return
    check_opposite(forward.translator, backward.translator)
    there, back = tee(short_enough(pairs, [forward.translator, backward.translator]))
    turned = ((target, source) for source, target in back)
    yield from zip(forward.matrices(there), backward.matrices(turned), strict=True)


def symmetrise_matrices(forward: Tensor, backward: Tensor, method: str) -> frozenset[Link]:
    """One set of links out of the weights [T, S] and [S, T] of two directions.

    `product` takes each link whose two shares, of its row in one matrix and of its row in the other, have a product
    above PRODUCT; every other method is one of `rela.evaluation.symmetrise`, on each row's best link.
    """
    if method != "product":
        return symmetrise(matrix_links(forward), turn(matrix_links(backward)), method)
    shares = [matrix / matrix.sum(-1, keepdim=True).clamp_min(1e-30) for matrix in (forward, backward)]
    found = (shares[0] * shares[1].T > PRODUCT).nonzero().tolist()
    return frozenset((source, target) for target, source in found)


def choose_if_needed(
    forward: Aligner, pairs: Iterable[tuple[str, str]], backward: Aligner | None = None
) -> Iterator[tuple[str, str]]:
    """The same pairs; before the first, heads are chosen on a sample of them for models that remember none."""
    stream = iter(pairs)
    aligners = [aligner for aligner in (forward, backward) if aligner is not None and not aligner.chosen]
    if not aligners:
        return stream
    sample = list(islice(stream, PAIRS))
    if not all(is_empty(*pair) for pair in sample):
        if backward is not None and len(aligners) == 2:
            choices = choose_together(forward.translator, backward.translator, sample, forward.tokenised)
        else:
            turned = sample if aligners[0] is forward else [(target, source) for source, target in sample]
            choices = (choose_alone(aligners[0].translator, turned, aligners[0].tokenised),)  # type: ignore[assignment]
        for aligner, choice in zip(aligners, choices, strict=True):
            aligner.choice, aligner.chosen = choice, True
    return chain(sample, stream)


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
