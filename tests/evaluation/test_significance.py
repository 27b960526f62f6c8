"""Paired bootstrap: what is the same does not differ, what is much better does, and the seed decides nothing else."""

import random

import pytest

from rela.evaluation.scores import bleu, chrf
from rela.evaluation.significance import paired_bootstrap


def texts() -> tuple[list[str], list[str], list[str]]:
    """References, translations with one word in twelve wrong, and ones with one in three wrong."""
    generator = random.Random(3)
    references = [" ".join(generator.choices("abcdefgh", k=12)) for _ in range(40)]

    def damaged(rate: float) -> list[str]:
        return [" ".join("x" if generator.random() < rate else word for word in line.split()) for line in references]

    return references, damaged(1 / 12), damaged(1 / 3)


def test_a_clear_difference_is_significant_and_none_is_not():
    references, good, bad = texts()
    better, _ = paired_bootstrap(good, bad, references)
    assert better.value - better.baseline > 20
    assert better.p < 0.01
    assert better.interval < 15
    same, _ = paired_bootstrap(good, good, references)
    assert same.value == same.baseline
    assert same.p == 1.0


def test_values_are_those_of_the_scores_and_the_other_way_round_is_the_same_test():
    references, good, bad = texts()
    there, back = paired_bootstrap(good, bad, references), paired_bootstrap(bad, good, references)
    assert [item.value for item in there] == [bleu(good, references).value, chrf(good, references).value]
    for one, other in zip(there, back, strict=True):
        assert (one.value, one.baseline) == (other.baseline, other.value)
        assert one.p == pytest.approx(other.p)
    assert there == paired_bootstrap(good, bad, references)


def test_texts_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        paired_bootstrap(["a", "b"], ["a"], ["a", "b"])
