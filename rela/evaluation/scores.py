"""Corpus scores of translations, each with the signature that says how it was computed."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_NGRAM = 4


@dataclass(frozen=True)
class Score:
    """One corpus-level figure in hundredths, and the recipe to compute it again."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.value:.2f}"


def bleu(hypotheses: Sequence[str], references: Sequence[str], **options: Any) -> Score:
    """Corpus BLEU of detokenised text by sacreBLEU; options go to `sacrebleu.metrics.BLEU`."""
    from sacrebleu.metrics import BLEU

    return _sacrebleu_score(BLEU(**options), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], **options: Any) -> Score:
    """Corpus chrF2 by sacreBLEU; options go to `sacrebleu.metrics.CHRF` (word_order=2 is chrF++)."""
    from sacrebleu.metrics import CHRF

    return _sacrebleu_score(CHRF(**options), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str], **options: Any) -> Score:
    """Corpus translation edit rate by sacreBLEU, lower is better; options go to `sacrebleu.metrics.TER`."""
    from sacrebleu.metrics import TER

    return _sacrebleu_score(TER(**options), hypotheses, references)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """BLEU of text that is already tokenised, the figure Moses' multi-bleu.perl prints.

        BLEU = 100 · BP · (p₁ p₂ p₃ p₄)^¼     BP = min(1, exp(1 − r / h))

    with pₙ the clipped n-gram precision of the whole corpus and h, r the number of hypothesis and reference
    words. No smoothing: a corpus without one matching n-gram of each length scores 0. As in the script, words are
    separated by ASCII white space alone (a no-break space is part of a word) and `lowercase` touches only A–Z.
    """
    check_same_length(hypotheses, references)
    matches, totals = [0] * LONGEST_NGRAM, [0] * LONGEST_NGRAM
    hypothesis_length = reference_length = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hypothesis_words, reference_words = _ascii_split(hypothesis, lowercase), _ascii_split(reference, lowercase)
        hypothesis_length += len(hypothesis_words)
        reference_length += len(reference_words)
        for n in range(1, LONGEST_NGRAM + 1):
            counts = Counter(_ngrams(hypothesis_words, n))
            matches[n - 1] += (counts & Counter(_ngrams(reference_words, n))).total()
            totals[n - 1] += counts.total()

    value = 0.0
    if all(matches):
        log_precision = sum(math.log(match / total) for match, total in zip(matches, totals, strict=True))
        brevity = min(0.0, 1 - reference_length / hypothesis_length)
        value = 100 * math.exp(brevity + log_precision / LONGEST_NGRAM)
    case = "lc-ascii" if lowercase else "mixed"
    return Score("BLEU", value, f"nrefs:1|case:{case}|eff:no|tok:whitespace|smooth:none|like:multi-bleu.perl")


def _sacrebleu_score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    check_same_length(hypotheses, references)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(score.name, float(score.score), metric.get_signature().format())


def check_same_length(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise unless there is one hypothesis for each reference, and at least one."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("hypotheses and references are lists of sentences, not one string")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references; one for each is wanted")
    if not hypotheses:
        raise ValueError("there is no sentence to score")


def _ascii_split(sentence: str, lowercase: bool) -> list[bytes]:
    """The words of a sentence as bytes, because the script reads bytes."""
    words = sentence.encode("utf-8", "surrogatepass")
    return (words.lower() if lowercase else words).split()


def _ngrams(words: list[bytes], n: int) -> Iterator[tuple[bytes, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)
