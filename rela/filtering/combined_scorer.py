"""The combined score of pairs, for whole corpora: numbers only, no words."""

from __future__ import annotations

from collections.abc import Sequence

from rela.decoding.translate import Translator
from rela.filtering.detector import DETECTOR, detector_fingerprint, detector_for, features_of, scorable, view_both
from rela.filtering.fingerprint import model_fingerprint
from rela.filtering.noise import Pair


class CombinedScorer:
    """One model, or two of opposite directions, with the detector in the first one's folder."""

    def __init__(self, forward: Translator, backward: Translator | None = None) -> None:
        found = detector_for(forward, backward)
        if found is None:
            which = "" if backward is None else " with this reverse model"
            raise ValueError(
                f"{forward.folder} has no {DETECTOR} made{which}; run rela check --calibrate on trusted pairs first"
            )
        self.forward, self.backward, self.detector = forward, backward, found

    @property
    def fingerprint(self) -> dict[str, str]:
        """What the scores depend on besides the forward model."""
        other = {} if self.backward is None else {"reverse": model_fingerprint(self.backward)}
        return {"detector": detector_fingerprint(self.detector), **other}

    def can_read(self, pair: Pair) -> bool:
        """Whether a pair is neither empty nor too long for a model."""
        return scorable(self.forward, self.backward, pair)

    def scores(self, pairs: Sequence[Pair]) -> list[tuple[float, float, float]]:
        """Null rate and log-probability of the forward model, and the combined score, of each pair."""
        if not pairs:
            return []
        there, back = view_both(self.forward, self.backward, pairs, self.detector.references)
        scores = self.detector.score(features_of(there, back)).tolist()
        return [(view.null_rate, view.log_prob, score) for view, score in zip(there, scores, strict=True)]
