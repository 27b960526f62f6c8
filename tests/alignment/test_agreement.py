"""Heads chosen without gold links: agreement by hand, and the choice as the best of all there are."""

import pytest
import torch

from rela.alignment.agreement import Agreement, SelfAgreement, choose_alone, choose_together, single_heads
from rela.alignment.choose import Aligner, AlignmentChoice
from rela.alignment.corpus import all_links, choose_if_needed, turn
from tests.tiny_models import BACK, HEADS, LAYERS, tiny_translator, toy_pairs

PAIRS = toy_pairs(6)
WORDS = tuple("abcdef")


def self_agreement(matrices):
    tally = SelfAgreement()
    for number, matrix in enumerate(matrices):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(number)).tolist()
        source = tuple(WORDS[i] for i in order)  # another order of the same words in each sentence
        tally.add(matrix, source, tuple(word.upper() for word in source))
    return tally.score()


def test_a_model_agrees_with_itself_most_where_it_aligns():
    exact = torch.eye(6)
    late = torch.eye(6).roll(1, 0)  # every row is a word too late: the words that are linked change
    piled = torch.zeros(6, 6)
    piled[:, 2] = 1.0  # one source word takes all
    few = torch.zeros(6, 6)
    few[0, 0] = 1.0  # right, and nearly always silent
    scores = [self_agreement([matrix] * 20) for matrix in (exact, late, few, piled)]
    assert scores[0] == 1.0, "every link mutual, and every word always linked to the same word"
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 1.3 * scores[1] > 2 * scores[2]


def test_agreement_of_two_directions_by_hand():
    tally = Agreement(2, 1)
    there = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])  # [2, T=3, S=2]
    back = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]])  # [1, S=2, T=3]
    tally.add(there, back)
    # Back links (0, 0) and (1, 2): the first option draws both among its 3 links, the second neither among its 2.
    assert tally.scores().tolist() == [[pytest.approx(2 * 2 / ((3 + 2) / 2 + 5 / 2))], [0.0]]


def test_two_models_are_chosen_by_how_well_their_links_agree():
    there, back = tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)
    found = choose_together(there, back, PAIRS)
    turned = [(target, source) for source, target in PAIRS]

    def agreement(one, other):
        ours = list(all_links(Aligner(there, one), PAIRS, None, None))
        theirs = [turn(links) for links in all_links(Aligner(back, other), turned, None, None)]
        common = sum(len(a & b) for a, b in zip(ours, theirs, strict=True))
        words = sum(len(text.split()) for pair in PAIRS for text in pair)
        return 2 * common / (sum(len(a) + len(b) for a, b in zip(ours, theirs, strict=True)) / 2 + words / 2)

    assert agreement(*found) == pytest.approx(found[0].agreement)
    assert found[0].agreement == found[1].agreement
    best = max(agreement(one, other) for one in single_heads(there)[:4] for other in single_heads(back)[:4])
    assert found[0].agreement >= best


def test_one_model_is_chosen_among_all_heads_and_sets_of_them():
    choice = choose_alone(tiny_translator(), PAIRS)
    assert choice.chosen_by == "one model"
    assert 0 <= choice.layer < LAYERS
    assert set(choice.heads or ()) <= set(range(HEADS))
    assert choice == choose_alone(tiny_translator(), iter([*PAIRS, ("never", "read")]), limit=len(PAIRS))
    assert len(single_heads(tiny_translator())) == 2 * LAYERS * HEADS


def test_pairs_that_cannot_be_read_are_passed_over():
    odd = [("", "allein"), ("zu lang " * 200, "x"), *PAIRS]
    assert choose_alone(tiny_translator(), odd) == choose_alone(tiny_translator(), PAIRS)
    with pytest.raises(ValueError, match="no sentence pair to choose heads on"):
        choose_alone(tiny_translator(), odd[:2])


def test_a_model_without_a_choice_gets_one_from_the_text_itself():
    aligner, known = Aligner(tiny_translator()), Aligner(tiny_translator(), AlignmentChoice(1, (0,), True))
    assert list(choose_if_needed(aligner, iter(PAIRS))) == PAIRS
    assert aligner.choice == choose_alone(tiny_translator(), PAIRS)
    turned = [(target, source) for source, target in PAIRS]
    backward = Aligner(tiny_translator())
    assert list(choose_if_needed(known, PAIRS, backward)) == PAIRS
    assert known.choice == AlignmentChoice(1, (0,), True)
    assert backward.choice == choose_alone(tiny_translator(), turned), "its own direction"
