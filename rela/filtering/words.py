"""What each word of a pair has on the other side: explanation, links, attention, null rows; and which have too little.

The numbers of one side are lists with a value for each word, by name, the most telling first. A detector keeps limits,
which few trusted words exceed, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rela.alignment.joint import AlignersDiffer, JointAligner, load_joint
from rela.analysis.words import word_index
from rela.decoding.translate import Translator
from rela.filtering.features import PairView, lacking
from rela.filtering.noise import Pair

OWN = 0.6
"""How much what a word itself lacks counts, if it is more than the mean of the word and its two neighbours."""
UNLINKED = 3.0
"""The nats that a word without a link counts as lacking, beside those it lacks of an explanation."""
REVERSE = "reverse "
"""What the names of numbers by the backward model begin with."""
LIMITED = ("missing", "lacking", "null", "attention")
"""The numbers that a word can be flagged by; "attention" is low, the others are high where a counterpart is absent."""
Numbers = dict[str, list[float]]
Links = tuple[list[float], list[float]]
"""Of each word of the target, and of each word of the source, the probability of its most probable link."""


def target_numbers(forward: Translator, pair: Pair, view: PairView, links: Links | None) -> Numbers:
    """The numbers of the target's words."""
    return output_numbers(forward, pair[1], view, None if links is None else links[0])


def source_numbers(
    forward: Translator,
    backward: Translator | None,
    pair: Pair,
    view: PairView,
    theirs: PairView | None,
    links: Links | None,
) -> Numbers:
    """The numbers of the source's words; with a backward model, whose output these words are, first its own."""
    found: Numbers = {}
    if backward is not None and theirs is not None:
        numbers = output_numbers(backward, pair[0], theirs, None if links is None else links[1])
        found = {REVERSE + name: values for name, values in numbers.items()}
    return found | {"attention": attention_by_word(forward, pair[0], view)}


def output_numbers(translator: Translator, text: str, view: PairView, links: list[float] | None) -> Numbers:
    """The numbers of the words that a model puts out.

    - missing: lacking + UNLINKED · (1 − link); only with links
    - lacking: nats that the other side lacks to explain the word and its neighbours
    - null: share of the heads that look at nothing where the word is written
    - log_prob: log-probability, the sum over subwords
    - link: the probability of its most probable link, see `links_by_word`; only with links
    """
    lacked = lacking_by_word(translator, text, view)
    pieces = translator.subwords.pieces(translator.subwords.encode(text))
    found = {"lacking": lacked, "null": by_word(view.null_rows[:-1], pieces)}
    found["log_prob"] = by_word(view.log_probs[:-1], pieces, total=True)
    if links is None:
        return found
    missing = [nats + UNLINKED * (1 - link) for nats, link in zip(lacked, links, strict=True)]
    return {"missing": missing} | found | {"link": links}


def flags(numbers: Numbers, limits: Mapping[str, float]) -> list[bool]:
    """Whether each word is beyond its limit, by the first number that has one; without limits no word is."""
    for name, values in numbers.items():
        if name in limits:
            limit = limits[name]
            return [value < limit if name == "attention" else value > limit for value in values]
    return [False] * len(next(iter(numbers.values())))


def limits_of(trusted: Sequence[Numbers], share: float) -> dict[str, float]:
    """For each number the limit that so many of the trusted words are beyond."""
    limits = {}
    for name in trusted[0]:
        if name.removeprefix(REVERSE) in LIMITED:
            values = [value for numbers in trusted for value in numbers[name]]
            limits[name] = float(np.quantile(values, share if name == "attention" else 1 - share))
    return limits


def shared_aligner(forward: Translator, backward: Translator | None) -> JointAligner | None:
    """The trained aligner of both models; None where a folder has none, or that of a training with a third model."""
    try:
        return None if backward is None else load_joint(forward, backward)
    except AlignersDiffer:
        return None


def links_by_word(
    aligner: JointAligner | None, pairs: Sequence[Pair], there: Sequence[PairView], back: Sequence[PairView] | None
) -> list[Links | None]:
    """The links of each pair's words by a trained aligner of both models, from the views of both; None without one.

    Of a target word it is max P(word | s) over the source words s, each of which spreads 1 over the target and its
    </s>; of a source word the same the other way round. P is a mean over the subwords of s. The word's own choice,
    max P(s | word), says less: a word without a counterpart often chooses one that belongs to another word.
    """
    if aligner is None or back is None:
        return [None] * len(pairs)
    found: list[Links | None] = []
    for pair, ours, theirs in zip(pairs, there, back, strict=True):
        source, target = (" ".join(text.split()) for text in pair)  # for links a no-break space is a part of a word
        of_targets, of_sources = aligner.matrices_of_memories((source, target), ours.memory, theirs.memory)
        found.append((of_sources.amax(0).tolist(), of_targets.amax(0).tolist()))  # of [S', T'] and [T', S']
    return found


def lacking_by_word(translator: Translator, target: str, view: PairView) -> list[float]:
    """The nats that each word of the target lacks of an explanation by the source, as its neighbours bear it out.

        max(OWN · x[i], mean(x[i − 1], x[i], x[i + 1]))     x the means over each word's subwords

    A passage without a source has words that are probable all the same, such as articles; their neighbours are not.
    """
    pieces = translator.subwords.pieces(translator.subwords.encode(target))
    x = np.array(by_word(lacking(view.log_probs[:-1], view.plain[:-1]), pieces))
    around = [x[max(i - 1, 0) : i + 2].mean() for i in range(len(x))]
    found: list[float] = np.maximum(OWN * x, around).tolist()
    return found


def attention_by_word(translator: Translator, source: str, view: PairView) -> list[float]:
    """What each word of the source gets in the layer that looks at it most."""
    pieces = translator.subwords.pieces(translator.subwords.encode(source))
    return by_word(view.coverage.max(0), pieces, total=True)


def by_word(values: NDArray[np.float64], pieces: Sequence[str], total: bool = False) -> list[float]:
    """The mean, or the sum, over each word's subwords."""
    found: dict[int, list[float]] = {}
    for word, value in zip(word_index(pieces), values.tolist(), strict=True):
        found.setdefault(word, []).append(value)
    return [sum(each) if total else sum(each) / len(each) for each in found.values()]
