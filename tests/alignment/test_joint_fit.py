"""What the aligner of two models is to learn, and that it learns it."""

import pytest

from rela.alignment.choose import Aligner, AlignmentChoice
from rela.alignment.corpus import align_corpus
from rela.alignment.fit import COMPUTING, FITTING
from rela.alignment.joint_fit import DRAWING, fit_joint, two_model_links, words_alike
from rela.analysis.words import words
from tests.tiny_models import BACK, tiny_translator, toy_pairs


@pytest.fixture(scope="module")
def heads():
    choice = AlignmentChoice(1, (0,), False)
    return Aligner(tiny_translator("softmax"), choice), Aligner(
        tiny_translator("softmax", seed=2, languages=BACK), choice
    )


def test_it_learns_the_links_of_the_heads(heads):
    """Of models without a turn: what it is shown, it draws again, and nothing of the models has changed."""
    pairs, reports = toy_pairs(8), []
    before = [{name: tensor.clone() for name, tensor in one.translator.model.state_dict().items()} for one in heads]
    short = fit_joint(*heads, pairs, steps=1, links="grow-diag", progress=lambda *report: reports.append(report))
    assert [report for report in reports if report[0] == COMPUTING] == [(COMPUTING, n, 8) for n in range(1, 9)]
    assert reports[-3:] == [(FITTING, 1, 2), (DRAWING, 8, 8), (FITTING, 2, 2)]  # a step of each round
    long = fit_joint(*heads, pairs, steps=80, links="grow-diag")
    shown = list(align_corpus(heads[0], pairs, heads[1], "grow-diag"))

    def overlap(fit):
        drawn = list(align_corpus(fit.aligner, pairs))
        common = sum(len(a & b) for a, b in zip(drawn, shown, strict=True))
        return 2 * common / sum(len(a) + len(b) for a, b in zip(drawn, shown, strict=True))

    assert overlap(long) > overlap(short) + 0.1
    assert fit_joint(*heads, pairs, steps=1, links="grow-diag").loss == short.loss, "the same seed, the same aligner"
    for one, state in zip(heads, before, strict=True):
        assert all(tensor.equal(state[name]) for name, tensor in one.translator.model.state_dict().items())
        assert all(parameter.grad is None for parameter in one.translator.model.parameters())


def test_a_comma_at_a_word_is_learnt_as_a_word_of_its_own(heads):
    ((sides, (taken, offered)),) = two_model_links(*heads, [("a cat, a dog", "ein Hund.")], "union")
    assert [len(words(side.pieces)) for side in sides] == [5, 3]
    assert taken == offered
    assert {s for s, _ in taken} <= set(range(5))
    assert {t for _, t in taken} <= set(range(3))


def test_two_vocabularies_that_split_punctuation_otherwise_count_words_by_spaces():
    assert words_alike(("▁a", ","), ("▁a", ",")) == (("▁a", "▁,"), ("▁a", "▁,"))
    assert words_alike(("▁a", ","), ("▁a,",)) == (("▁a", ","), ("▁a,",))


def test_one_pair_is_too_few_and_heads_without_links_teach_nothing(heads):
    with pytest.raises(ValueError, match="wanted at least two"):
        fit_joint(*heads, toy_pairs(1))
    flat = [Aligner(one.translator, AlignmentChoice(0, None, False)) for one in heads]
    with pytest.raises(ValueError, match="draw no links"):
        fit_joint(*flat, [(source * 4, target * 4) for source, target in toy_pairs(4)], links="product")
