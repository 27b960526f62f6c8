"""A custom filter for OpusFilter pipelines: sentence pairs by null rate or log-probability of a model.

In the YAML of a `filter` or `score` step:

    filters:
      - NullRateFilter: {model: runs/model, threshold: 0.45}
        module: rela.filtering.opusfilter

The module imports without OpusFilter too; the class then stands alone, with the same methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rela.decoding.even_packing import IdPair
from rela.decoding.translate import PairTooLong, Translator
from rela.filtering.pair_scores import PairScore, score_ids

if TYPE_CHECKING:
    FilterABC: Any = object
else:
    try:
        from opusfilter import FilterABC
    except ImportError:

        class FilterABC:
            """What a filter needs to be used alone: decisions and filtering by `score` and `accept`."""

            def __init__(self, name: str | None = None, workdir: str = "", **unknown: Any) -> None:
                if unknown:
                    raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
                self.name, self.workdir = name, workdir

            def decisions(self, pairs: Iterable[Any]) -> Iterator[bool]:
                return map(self.accept, self.score(pairs))


CHUNK = 1024
"""Pairs read and scored together."""
# An empty or overlong pair cannot be scored; it counts as the worst there is.
WORST = PairScore(null_rate=1.0, log_prob=float("-inf"))


class NullRateFilter(FilterABC):
    """Accept pairs whose null rate is at most `threshold`."""

    score_direction = "clean_low"
    accept_threshold = 1.0
    reject_threshold = -1e-6

    def __init__(self, model: str, threshold: float = 0.5, device: str = "auto", **options: Any) -> None:
        super().__init__(**options)
        inside = Path(self.workdir or "") / model  # as OpusFilter's own filters find their files
        self.translator = Translator.load(inside if inside.is_dir() else model, device)
        self.threshold = threshold

    def score(self, pairs: Iterable[Sequence[str]]) -> Iterator[float]:
        """The null rate of each pair."""
        return (score.null_rate for score in self.pair_scores(pairs))

    def accept(self, score: float) -> bool:
        return score <= self.threshold

    def pair_scores(self, pairs: Iterable[Sequence[str]]) -> Iterator[PairScore]:
        """Both scores of each pair, in order; pairs are read as they are needed."""
        stream = iter(pairs)
        while chunk := list(islice(stream, CHUNK)):
            ids = [self.encode(pair) for pair in chunk]
            scored = iter(score_ids(self.translator, [pair for pair in ids if pair is not None]))
            yield from (WORST if pair is None else next(scored) for pair in ids)

    def encode(self, pair: Sequence[str]) -> IdPair | None:
        """Subword ids of a pair, or None if it cannot be scored."""
        if len(pair) != 2:
            raise ValueError(f"{type(self).__name__} wants pairs of sentences; found {len(pair)}")
        try:
            ids = self.translator.encode_pair(*pair)
        except PairTooLong:
            return None
        return ids if all(ids) else None

    # OpusFilter's own version scores one pair at a time; these keep whole batches for the model.
    def filter(self, pairs: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The accepted pairs."""
        return (pair for pair, accepted in self.decided(pairs) if accepted)

    def filterfalse(self, pairs: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The rejected pairs."""
        return (pair for pair, accepted in self.decided(pairs) if not accepted)

    def decided(self, pairs: Iterable[Sequence[str]]) -> Iterator[tuple[Sequence[str], bool]]:
        """Each pair and whether it is accepted."""
        stream = iter(pairs)
        while chunk := list(islice(stream, CHUNK)):
            yield from zip(chunk, map(self.accept, self.score(chunk)), strict=True)


class LogProbFilter(NullRateFilter):
    """Accept pairs whose log-probability for each target subword is at least `threshold`."""

    score_direction = "clean_high"
    accept_threshold = float("-inf")
    reject_threshold = 1e-6

    def __init__(self, model: str, threshold: float = -3.0, device: str = "auto", **options: Any) -> None:
        super().__init__(model, threshold, device, **options)

    def score(self, pairs: Iterable[Sequence[str]]) -> Iterator[float]:
        """The log-probability of each pair."""
        return (score.log_prob for score in self.pair_scores(pairs))

    def accept(self, score: float) -> bool:
        return score >= self.threshold
