"""Sentence pairs checked one by one: a score, what in the target has no source, what in the source was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.alignment.joint import JointAligner
from rela.decoding.translate import Translator
from rela.filtering.detector import Detector, detector_for, features_of, problem_of, view_both
from rela.filtering.features import PairView
from rela.filtering.fingerprint import aligner_fingerprint
from rela.filtering.noise import Pair
from rela.filtering.words import (
    REVERSE,
    Links,
    Numbers,
    flags,
    links_by_word,
    shared_aligner,
    source_numbers,
    target_numbers,
)

WINDOW = 512
"""Pairs that are read and looked at together."""
LOOSE_SPACE = re.compile(r"(?<!\d) | (?!\d)")
"""A space that is not between two digits."""


@dataclass(frozen=True)
class WordCheck:
    """One word of a pair."""

    word: str
    """As it is written, even if the model does not know its characters."""
    null: float | None = None
    """Share of the heads that look at nothing where this word is written. This, log_prob and lacking are of the model
    that has the word in its output: a source word has them only with a reverse model."""
    log_prob: float | None = None
    """The sum over the word's subwords."""
    lacking: float | None = None
    """The nats that it and its neighbours lack of an explanation by the other side."""
    link: float | None = None
    """The probability of its most probable link, by the trained aligner of both models, if there is one."""
    missing: float | None = None
    """Both in one number: the nats lacked, and more for a word without a link."""
    attention: float | None = None
    """What a source word gets in the layer that looks at it most; 1 is the whole row of a target subword."""
    flagged: bool = False
    """A target word without a source, a source word left untranslated: more so than 99 % of trusted words."""


@dataclass(frozen=True)
class PairCheck:
    """What is known of one pair; a pair with a problem has no numbers."""

    line: int
    source: str
    target: str
    problem: str = ""
    score: float | None = None
    """From 0 to 1, high is bad; of a model that is not calibrated, minus the log-probability for each subword."""
    verdict: str = ""
    """"ok", "notice" (worse than 95 % of trusted pairs), "warn" (worse than 99 %), or "" without a detector.
    A pair whose sides are the same and have no letter is "ok" whatever its score."""
    log_prob: float | None = None
    contrast: float | None = None
    null_rate: float | None = None
    null_by_head: list[list[float]] | None = None
    """[layers][heads]."""
    reverse: dict[str, Any] | None = None
    """log_prob, contrast, null_rate and null_by_head of the reverse model."""
    target_words: list[WordCheck] | None = None
    source_words: list[WordCheck] | None = None

    def row(self) -> dict[str, Any]:
        """Everything as plain values, such as JSON has."""
        return asdict(self)


class Checker:
    """Checks sentence pairs with one model, or with two of opposite directions."""

    def __init__(self, forward: Translator, backward: Translator | None = None) -> None:
        self.forward, self.backward = forward, backward
        self.detector: Detector | None = detector_for(forward, backward)
        self.aligner = aligner_of(self.detector, forward, backward)

    def check(self, pairs: Iterable[Pair], first: int = 1) -> Iterator[PairCheck]:
        """Each pair checked, in order; pairs are read as they are needed, and `first` is the line of the first one."""
        stream = enumerate(pairs, start=first)
        while window := list(islice(stream, WINDOW)):
            problems = [problem_of(self.forward, self.backward, pair) for _, pair in window]
            results = self.check_window([item for item, problem in zip(window, problems, strict=True) if not problem])
            for (line, pair), problem in zip(window, problems, strict=True):
                yield PairCheck(line, *pair, problem=problem) if problem else next(results)

    def check_window(self, numbered: Sequence[tuple[int, Pair]]) -> Iterator[PairCheck]:
        """The checks of pairs that both models can read, with their lines."""
        if not numbered:
            return
        references = ("", "") if self.detector is None else self.detector.references
        pairs = [pair for _, pair in numbered]
        there, back = view_both(self.forward, self.backward, pairs, references)
        links = links_by_word(self.aligner, pairs, there, back)
        for i, score in enumerate(self.scores(there, back).tolist()):
            yield self.make_check(*numbered[i], there[i], None if back is None else back[i], links[i], score)

    def scores(self, there: Sequence[PairView], back: Sequence[PairView] | None) -> NDArray[np.float64]:
        """[N], high is bad."""
        if self.detector is not None:
            return self.detector.score(features_of(there, back))
        both = [view.log_prob for view in there], [view.log_prob for view in back or there]
        return np.asarray(-np.mean(both, axis=0))

    def make_check(
        self, line: int, pair: Pair, ours: PairView, theirs: PairView | None, links: Links | None, score: float
    ) -> PairCheck:
        """All that is known of one pair, from the views of one model or of both."""
        limits = {} if self.detector is None else self.detector.words
        return PairCheck(
            line,
            *pair,
            score=score,
            verdict=self.verdict(score, pair),
            **numbers(ours),
            reverse=None if theirs is None else numbers(theirs),
            target_words=word_checks(pair[1], target_numbers(self.forward, pair, ours, links), limits),
            source_words=word_checks(
                pair[0], source_numbers(self.forward, self.backward, pair, ours, theirs, links), limits
            ),
        )

    def verdict(self, score: float, pair: Pair) -> str:
        """How a score compares with those of trusted pairs."""
        if self.detector is None:
            return ""
        if nothing_to_translate(*pair):  # its score is that of a copy
            return "ok"
        limits = self.detector.thresholds
        return "warn" if score > limits["warn"] else "notice" if score > limits["notice"] else "ok"


def word_checks(text: str, numbers: Numbers, limits: Mapping[str, float]) -> list[WordCheck]:
    """The words of one side with their numbers, whichever model these are of."""
    names = [name.removeprefix(REVERSE) for name in numbers]
    rows = zip(text.split(), flags(numbers, limits), *numbers.values(), strict=True)
    return [
        WordCheck(word, flagged=flagged, **dict(zip(names, values, strict=True))) for word, flagged, *values in rows
    ]


def aligner_of(detector: Detector | None, forward: Translator, backward: Translator | None) -> JointAligner | None:
    """The trained aligner of both models, if a detector's limits were made with it.

    Without it, words are flagged by what they lack alone.
    """
    if detector is None or not detector.aligner:
        return None
    aligner = shared_aligner(forward, backward)
    return aligner if aligner is not None and aligner_fingerprint(aligner) == detector.aligner else None


def nothing_to_translate(source: str, target: str) -> bool:
    """Whether both sides are the same and have no letter: numbers, punctuation, emoji.

    White space counts between digits only: `12 %` is `12%`, `1 2` is not `12`.
    """
    sides = (LOOSE_SPACE.sub("", " ".join(side.split())) for side in (source, target))
    return len(set(sides)) == 1 and not any(character.isalpha() for character in source)


def numbers(view: PairView) -> dict[str, Any]:
    """The numbers of one model."""
    return {
        "log_prob": view.log_prob,
        "contrast": view.contrast,
        "null_rate": view.null_rate,
        "null_by_head": view.null.tolist(),
    }
