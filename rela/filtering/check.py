"""Sentence pairs checked one by one: a score, what in the target has no source, what in the source was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.decoding.translate import Translator
from rela.filtering.detector import (
    Detector,
    attention_by_word,
    by_word,
    detector_for,
    features_of,
    lacking_by_word,
    null_by_word,
    problem_of,
    view_both,
)
from rela.filtering.features import PairView
from rela.filtering.noise import Pair

WINDOW = 512
"""Pairs that are read and looked at together."""
LOOSE_SPACE = re.compile(r"(?<!\d) | (?!\d)")
"""A space that is not between two digits."""


@dataclass(frozen=True)
class WordCheck:
    """One word of a pair."""

    word: str
    """As it is written, even if the model does not know its characters."""
    null: float | None
    """Share of the heads that look at nothing where this word is written; None for a source word without a reverse
    model."""
    log_prob: float | None = None
    """Of a target word, the sum over its subwords."""
    attention: float | None = None
    """What a source word gets in the layer that looks at it most; 1 is the whole row of a target subword."""
    lacking: float | None = None
    """Of a target word, the nats that it and its neighbours lack of an explanation by the source."""
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
        there, back = view_both(self.forward, self.backward, [pair for _, pair in numbered], references)
        for i, score in enumerate(self.scores(there, back).tolist()):
            yield self.make_check(*numbered[i], there[i], None if back is None else back[i], score)

    def scores(self, there: Sequence[PairView], back: Sequence[PairView] | None) -> NDArray[np.float64]:
        """[N], high is bad."""
        if self.detector is not None:
            return self.detector.score(features_of(there, back))
        both = [view.log_prob for view in there], [view.log_prob for view in back or there]
        return np.asarray(-np.mean(both, axis=0))

    def make_check(self, line: int, pair: Pair, ours: PairView, theirs: PairView | None, score: float) -> PairCheck:
        """All that is known of one pair, from the views of one model or of both."""
        return PairCheck(
            line,
            *pair,
            score=score,
            verdict=self.verdict(score, pair),
            **numbers(ours),
            reverse=None if theirs is None else numbers(theirs),
            target_words=self.target_words(pair, ours),
            source_words=self.source_words(pair, ours, theirs),
        )

    def verdict(self, score: float, pair: Pair) -> str:
        """How a score compares with those of trusted pairs."""
        if self.detector is None:
            return ""
        if nothing_to_translate(*pair):  # its score is that of a copy
            return "ok"
        limits = self.detector.thresholds
        return "warn" if score > limits["warn"] else "notice" if score > limits["notice"] else "ok"

    def target_words(self, pair: Pair, view: PairView) -> list[WordCheck]:
        """The target's words, with what has no source."""
        pieces = self.forward.subwords.pieces(self.forward.subwords.encode(pair[1]))
        null = null_by_word(self.forward, pair[1], view)
        log_prob = by_word(view.log_probs[:-1], pieces, total=True)
        lacked = lacking_by_word(self.forward, pair[1], view)
        limits = {} if self.detector is None else self.detector.words
        by, limit = (lacked, limits["lacking"]) if "lacking" in limits else (null, limits.get("null", 2.0))
        return [
            WordCheck(word, n, p, lacking=x, flagged=value > limit)
            for word, n, p, x, value in zip(pair[1].split(), null, log_prob, lacked, by, strict=True)
        ]

    def source_words(self, pair: Pair, view: PairView, theirs: PairView | None) -> list[WordCheck]:
        """The source's words, with what was left untranslated: by the reverse model's null rows where there is one."""
        attention = attention_by_word(self.forward, pair[0], view)
        if theirs is None or self.backward is None:
            limit = -1.0 if self.detector is None else self.detector.words["attention"]
            return [
                WordCheck(word, None, attention=a, flagged=a < limit)
                for word, a in zip(pair[0].split(), attention, strict=True)
            ]
        null = null_by_word(self.backward, pair[0], theirs)
        limit = 2.0 if self.detector is None else self.detector.words["reverse null"]
        return [
            WordCheck(word, n, attention=a, flagged=n > limit)
            for word, n, a in zip(pair[0].split(), null, attention, strict=True)
        ]


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
