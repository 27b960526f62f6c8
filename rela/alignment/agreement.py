"""Heads to read word links from, chosen without gold links: on any parallel text, with one model or with two.

Two models of opposite directions agree on a link where both draw it. One model agrees with itself where a target word
weighs a source word most and that source word is weighed most by that target word. What is wrong with a head (another
word order, one word that takes all, a row too early) is wrong in another way in the other direction, so that agreement
falls with the alignment error rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from rela.alignment.choose import AlignmentChoice
from rela.analysis.capture import capture
from rela.analysis.links import NO_LINK, best_source, word_weights
from rela.analysis.record import END
from rela.analysis.words import words
from rela.data.corpus import is_empty
from rela.decoding.directions import check_opposite, check_order, is_readable
from rela.decoding.translate import Translator

PAIRS = 500
"""Pairs a choice is made on, unless told otherwise; a hundred already find the same head on the embedded corpus."""

Pair = tuple[str, str]


def choose_alone(
    translator: Translator, pairs: Iterable[Pair], tokenised: bool = False, limit: int = PAIRS
) -> AlignmentChoice:
    """The heads of one layer whose links agree best with themselves, of one model alone.

        agreement = (|A ∩ B| + Σ over A ∩ B of √(p(s | t) · p(t | s))) / (|A| + (S + T) / 2)

    A links each target word to the source word it weighs most, B each source word to the target word that weighs it
    most; p is the share of a word type's other links that go to the same word type, so that links which repeat from
    sentence to sentence count more. S and T are the numbers of words. Single heads are compared first, then in each
    layer the two, three, … best together.
    """
    sample = usable(pairs, [translator], limit)
    check_order(translator, sample)

    def scores(options: Sequence[AlignmentChoice]) -> list[float]:
        """The agreement of each option on the sample."""
        tallies = [SelfAgreement() for _ in options]
        for matrices, source, target in all_matrices(translator, sample, options, tokenised):
            for tally, matrix in zip(tallies, matrices, strict=True):
                tally.add(matrix, source, target)
        return [tally.score() for tally in tallies]

    return best_of_rounds(translator, scores, "one model")


def choose_together(
    forward: Translator, backward: Translator, pairs: Iterable[Pair], tokenised: bool = False, limit: int = PAIRS
) -> tuple[AlignmentChoice, AlignmentChoice]:
    """The heads of two models of opposite directions whose links agree best; pairs are written as for `forward`.

        agreement = 2 |A ∩ B| / ((|A| + |B|) / 2 + (S + T) / 2)

    A are the forward model's links and B the backward model's, turned round. Every head of one model is compared with
    every head of the other, then the two, three, … best heads of the two layers found.
    """
    check_opposite(forward, backward)
    sample = usable(pairs, [forward, backward], limit)
    check_order(forward, sample)
    turned = [(target, source) for source, target in sample]

    def agreements(ours: Sequence[AlignmentChoice], theirs: Sequence[AlignmentChoice]) -> Tensor:
        """[ours, theirs]."""
        tally = Agreement(len(ours), len(theirs))
        there = all_matrices(forward, sample, ours, tokenised)
        back = all_matrices(backward, turned, theirs, tokenised)
        for (one, _, _), (other, _, _) in zip(there, back, strict=True):
            tally.add(torch.stack(list(one)), torch.stack(list(other)))
        return tally.scores()

    ours, theirs = single_heads(forward), single_heads(backward)
    found = agreements(ours, theirs)
    row, column = divmod(int(found.argmax()), len(theirs))
    ours = [ours[row], *larger_sets(ours[row], ours, found[:, column].tolist())]
    theirs = [theirs[column], *larger_sets(theirs[column], theirs, found[row].tolist())]
    found = agreements(ours, theirs)
    row, column = divmod(int(found.argmax()), len(theirs))
    score = {"agreement": float(found[row, column]), "chosen_by": "two directions"}
    return replace(ours[row], **score), replace(theirs[column], **score)  # type: ignore[arg-type]


def usable(pairs: Iterable[Pair], models: list[Translator], limit: int) -> list[Pair]:
    """The first `limit` pairs that are neither empty nor too long for a model, the second of which is turned round."""
    if limit < 1:
        raise ValueError(f"the number of pairs to choose on is {limit}; wanted at least 1")

    def fits(source: str, target: str) -> bool:
        """Whether every model can read a pair, which has words on both sides."""
        sides = zip(models, ((source, target), (target, source)), strict=False)
        return not is_empty(source, target) and all(is_readable(model, *pair) for model, pair in sides)

    sample = list(islice((pair for pair in pairs if fits(*pair)), limit))
    if not sample:
        raise ValueError("there is no sentence pair to choose heads on; wanted some that the model can read")
    return sample


def single_heads(translator: Translator) -> list[AlignmentChoice]:
    """Every head of every layer, normal and shifted."""
    shape = translator.config.model
    return [
        AlignmentChoice(layer, (head,), shifted)
        for shifted in (False, True)
        for layer in range(shape.decoder_layers)
        for head in range(shape.heads)
    ]


def larger_sets(
    best: AlignmentChoice, options: Sequence[AlignmentChoice], scores: Sequence[float]
) -> list[AlignmentChoice]:
    """The two, three, … best heads of the layer of `best`, read as it is."""
    order = sorted(range(len(options)), key=lambda i: -scores[i])
    heads = [options[i].heads for i in order if (options[i].layer, options[i].shifted) == (best.layer, best.shifted)]
    flat = [head for one in heads for head in one or ()]
    return [replace(best, heads=tuple(flat[:count])) for count in range(2, len(flat) + 1)]


def best_of_rounds(
    translator: Translator, scores: Callable[[Sequence[AlignmentChoice]], list[float]], chosen_by: str
) -> AlignmentChoice:
    """The best single head, or the best set of heads of one layer where that scores higher."""
    options = single_heads(translator)
    values = scores(options)
    best_in_layer: dict[int, int] = {}
    for i, option in enumerate(options):
        if option.layer not in best_in_layer or values[i] > values[best_in_layer[option.layer]]:
            best_in_layer[option.layer] = i
    sets = [option for i in best_in_layer.values() for option in larger_sets(options[i], options, values)]
    if sets:
        options, values = options + sets, values + scores(sets)
    best = max(range(len(options)), key=values.__getitem__)  # the first of equals: fewer heads before more
    return replace(options[best], agreement=values[best], chosen_by=chosen_by)


def all_matrices(
    translator: Translator, pairs: Sequence[Pair], options: Sequence[AlignmentChoice], tokenised: bool
) -> Iterator[tuple[Iterator[Tensor], tuple[str, ...], tuple[str, ...]]]:
    """For each pair the word weights [T, S] of every option, and the source's and the target's words."""
    for pair in capture(translator, pairs, ("cross",), tokenised=tokenised):
        record = pair["cross"]
        weights = {shifted: word_weights(record, shifted) for shifted in {option.shifted for option in options}}
        found = (option.combine(weights[option.shifted][option.layer]) for option in options)
        yield found, words([key for key in record.keys if key != END]), words(record.queries[:-1])


class SelfAgreement:
    """Counts how well the rows and the columns of weight matrices agree, and how consistent their links are."""

    def __init__(self) -> None:
        self.links = self.words = 0
        self.pairs: Counter[Pair] = Counter()
        self.sources: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()

    def add(self, matrix: Tensor, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Count the links of one sentence: word weights [T, S], and its words."""
        by_row, by_column = best_source(matrix).tolist(), best_source(matrix.T).tolist()
        self.links += sum(s != NO_LINK for s in by_row)
        self.words += len(source) + len(target)
        for t, s in enumerate(by_row):
            if s != NO_LINK and by_column[s] == t:
                self.pairs[source[s], target[t]] += 1
                self.sources[source[s]] += 1
                self.targets[target[t]] += 1

    def score(self) -> float:
        """The agreement of `choose_alone`, over all sentences added."""
        repeated = (
            count * math.sqrt((count - 1) / (self.sources[s] - 1) * (count - 1) / (self.targets[t] - 1))
            for (s, t), count in self.pairs.items()
            if count > 1
        )
        return (self.pairs.total() + sum(repeated)) / (self.links + self.words / 2)


@dataclass
class Agreement:
    """Counts how well the links of some options of one direction and of the other agree."""

    ours: int
    theirs: int

    def __post_init__(self) -> None:
        self.common = torch.zeros(self.ours, self.theirs)
        self.links = torch.zeros(self.ours, self.theirs)
        self.words = 0

    def add(self, there: Tensor, back: Tensor) -> None:
        """One pair: there [ours, T, S], back [theirs, S, T]."""
        one, other = linked(there), linked(back).transpose(1, 2)  # [ours, T, S], [theirs, T, S]
        self.common += one.flatten(1) @ other.flatten(1).T
        self.links += (one.sum((1, 2))[:, None] + other.sum((1, 2))) / 2
        self.words += sum(there.shape[1:])

    def scores(self) -> Tensor:
        """[ours, theirs]."""
        return 2 * self.common / (self.links + self.words / 2)


def linked(weights: Tensor) -> Tensor:
    """[options, T, S], 1 at the link of each row of weights of that shape and 0 elsewhere."""
    found = best_source(weights)[..., None]
    return (torch.arange(weights.size(-1)) == found).float()
