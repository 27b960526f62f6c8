"""Scores of translations: known answers, and sacreBLEU as the second way to tokenised BLEU."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rela.evaluation.scores import Score, bleu, chrf, ter, tokenised_bleu

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6)


def sacrebleu_without_smoothing(hypotheses, references):
    return bleu(hypotheses, references, tokenize="none", smooth_method="none", force=True).value


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_tokenised_bleu_is_unsmoothed_sacrebleu(pairs):
    hypotheses, references = zip(*pairs, strict=True)
    expected = sacrebleu_without_smoothing(hypotheses, references)
    assert tokenised_bleu(hypotheses, references).value == pytest.approx(expected, abs=1e-9)


def test_tokenised_bleu_by_hand():
    # 1-grams 5/6, 2-grams 4/5, 3-grams 3/4, 4-grams 2/3; the hypothesis is one word shorter: BP = exp(1 - 7/6)
    score = tokenised_bleu(["the cat sat on the rug"], ["the cat sat on the mat ."])
    expected = 100 * math.exp(1 - 7 / 6) * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert score.value == pytest.approx(expected)


def test_a_long_hypothesis_has_no_brevity_penalty():
    hypotheses, references = ["a b c d e e e"], ["a b c d e"]
    expected = 100 * (5 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert tokenised_bleu(hypotheses, references).value == pytest.approx(expected)
    assert sacrebleu_without_smoothing(hypotheses, references) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("hypothesis", "reference"),
    [
        ("a b c x d", "a b c y d"),  # no 4-gram matches
        ("a b c", "a b c"),  # there is no 4-gram
        ("", "a b c d"),
        ("a b c d", ""),
        ("", ""),
    ],
)
def test_a_corpus_without_matching_4_gram_scores_zero(hypothesis, reference):
    assert tokenised_bleu([hypothesis], [reference]).value == 0.0


def test_counts_are_summed_over_the_corpus():
    hypotheses, references = ["a b", "a b c d e"], ["a b", "a b c d e"]
    assert tokenised_bleu(hypotheses, references).value == pytest.approx(100)


def test_words_end_at_ascii_white_space_alone():
    reference = "a b c d 10\u00a0000 e"
    assert tokenised_bleu(["a b\tc  d 10\u00a0000 e\r"], [reference]).value == pytest.approx(100)
    assert tokenised_bleu(["a b c d 10 000 e"], [reference]).value < 99


def test_lowercase_touches_only_ascii():
    assert tokenised_bleu(["Das IST ein HAUS"], ["das ist ein Haus"], lowercase=True).value == pytest.approx(100)
    assert tokenised_bleu(["Das IST ein HAUS"], ["das ist ein Haus"]).value == 0
    signatures = [tokenised_bleu(["a"], ["a"], lowercase=lower).signature for lower in (True, False)]
    assert [signature.split("|")[1] for signature in signatures] == ["case:lc-ascii", "case:mixed"]
    assert tokenised_bleu(["das ist ein ÖL"], ["das ist ein öl"], lowercase=True).value == 0


def test_sacrebleu_scores_carry_their_signature():
    sentences = ["The cat is on the mat.", "Hello, world!"]
    for score in (bleu(sentences, sentences), chrf(sentences, sentences)):
        assert score.value == pytest.approx(100)
        assert "version:" in score.signature
    assert "tok:13a" in bleu(sentences, sentences).signature
    assert "tok:char" in bleu(sentences, sentences, tokenize="char").signature
    assert chrf(sentences, sentences).name == "chrF2"


def test_detokenised_bleu_does_not_depend_on_spaces_around_punctuation():
    assert bleu(["Hello , world !"], ["Hello, world!"], force=True).value == pytest.approx(100)


def test_a_score_prints_as_one_line():
    assert str(Score("BLEU", 26.567, "nrefs:1|tok:13a")) == "BLEU|nrefs:1|tok:13a = 26.57"


@pytest.mark.parametrize("score", [bleu, chrf, tokenised_bleu])
def test_bad_input_is_named(score):
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="no sentence"):
        score([], [])
    with pytest.raises(TypeError, match="not one string"):
        score("a b", "a b")


def test_the_edit_rate_counts_edits_and_shifts_for_each_reference_word():
    assert ter(["a b c d"], ["a b c d"]).value == 0.0
    assert ter(["a x c", "a b"], ["a b c d", "b a"]).value == pytest.approx(100 * (2 + 1) / 6)  # a shift is one edit
    assert "tok:tercom" in ter(["a"], ["a"]).signature
