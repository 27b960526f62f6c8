"""Aligning a corpus: one direction or two, and lines that cannot be aligned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.alignment.choose import Aligner, choose
from rela.alignment.corpus import align_corpus, all_links, choose_backward, turn
from rela.alignment.punctuation import same_sort
from rela.evaluation.alignment import GoldLinks, symmetrise
from rela.toy import generate
from tests.tiny_models import BACK, tiny_translator, toy_pairs

TOY = list(generate(6, seed=5))
PAIRS = [(pair.source, pair.target) for pair in TOY]
GOLD = [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in TOY]


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag-final"])
def test_two_directions_are_symmetrised(method):
    forward, backward = Aligner(tiny_translator()), Aligner(tiny_translator("rela-g", seed=2, languages=BACK))
    there = all_links(forward, PAIRS, None, None)
    back = map(turn, all_links(backward, [(target, source) for source, target in PAIRS], None, None))
    expected = [
        same_sort(symmetrise(one, other, method), source.split(), target.split())
        for (source, target), one, other in zip(PAIRS, there, back, strict=True)
    ]
    assert list(align_corpus(forward, PAIRS, backward, method)) == expected


def test_the_backward_model_is_chosen_on_turned_gold():
    model = tiny_translator("rela-g", seed=2, languages=BACK)
    turned = [GoldLinks(turn(gold.sure), turn(gold.possible)) for gold in GOLD]
    assert choose_backward(model, PAIRS, GOLD) == choose(model, [(target, source) for source, target in PAIRS], turned)


@given(st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_turned_twice_is_as_before(links):
    assert turn(turn(links)) == links


def test_empty_and_overlong_lines_have_no_links_and_keep_their_place():
    pairs = [PAIRS[0], ("", ""), ("", "allein"), ("alone", ""), ("zu lang " * 200, "x"), PAIRS[1]]
    aligner = Aligner(tiny_translator())
    with pytest.warns(UserWarning, match="line 5 gets no links"):
        found = list(align_corpus(aligner, pairs))
    assert [bool(links) for links in found[1:5]] == [False] * 4
    assert [found[0], found[5]] == list(align_corpus(aligner, PAIRS[:2]))


def test_a_text_of_any_length_is_read_as_it_is_needed():
    taken = []
    endless = (taken.append(1) or pair for _ in range(10**9) for pair in toy_pairs(2))
    next(align_corpus(Aligner(tiny_translator()), endless, Aligner(tiny_translator("rela-g", seed=2, languages=BACK))))
    assert len(taken) < 2000
