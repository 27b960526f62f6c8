"""Whether two systems differ: paired bootstrap resampling (Koehn, 2004), by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rela.evaluation.scores import check_same_length

SAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """A system and a baseline by one score, each with a 95 % interval, and how likely chance makes such a difference.

    `p` is the share of resampled texts whose difference is as far from the mean difference as the one that was seen.
    """

    name: str
    value: float
    interval: float
    baseline: float
    baseline_interval: float
    p: float
    signature: str

    def __str__(self) -> str:
        system, baseline = (
            f"{self.value:.2f} ± {self.interval:.2f}",
            f"{self.baseline:.2f} ± {self.baseline_interval:.2f}",
        )
        difference = f"{self.value - self.baseline:+.2f}, p = {self.p:.4f}"
        return f"{self.name}|{self.signature}: {system}, baseline {baseline}, difference {difference}"


def paired_bootstrap(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], ter: bool = False
) -> list[Comparison]:
    """BLEU and chrF, and TER if asked for, of a system and a baseline over the same resampled sentences."""
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest

    check_same_length(hypotheses, references)
    check_same_length(baseline, references)
    metrics = {"BLEU": BLEU(), "chrF": CHRF(), **({"TER": TER()} if ter else {})}
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(hypotheses))]
    signatures, scores = PairedTest(systems, metrics, [list(references)], "bs", SAMPLES)()
    return [compared(name, signature.format(), *scores[name]) for name, signature in signatures.items()]


def compared(name: str, signature: str, before: Any, after: Any) -> Comparison:
    """Two of sacreBLEU's results, of the baseline and of the system, as a comparison."""
    intervals = {"interval": float(after.ci), "baseline_interval": float(before.ci)}
    # sacreBLEU calls even a text and itself significantly different: no sample's difference is above theirs, 0.
    p = 1.0 if after.score == before.score else float(after.p_value)
    return Comparison(name, float(after.score), baseline=float(before.score), p=p, signature=signature, **intervals)
