"""What a trained aligner is to learn, and that it learns it."""

import pytest
import torch

from rela.alignment.choose import Aligner, AlignmentChoice
from rela.alignment.corpus import align_corpus
from rela.alignment.fit import COMPUTING, FITTING, batch_targets, fit, head_links, targets_of
from rela.analysis.capture import Encoded
from rela.analysis.words import words
from tests.tiny_models import LAYERS, tiny_translator, toy_pairs


def test_links_become_distributions_over_subwords():
    source = Encoded([1, 2, 3], ("▁a", "b", "▁c"))
    target = Encoded([4, 5, 6, 7], ("▁x", "▁y", "z", "▁w"))
    taken, offered = frozenset({(0, 0), (0, 1), (1, 1)}), frozenset({(0, 0), (0, 1), (1, 1)})
    wanted, counted = batch_targets([targets_of(source, target, taken, offered)], (5, 6))
    third = 1 / 3
    assert torch.allclose(
        wanted[0, :4],
        torch.tensor(
            [
                [0.5, 0.5, 0, 0, 0, 0],  # x is a b
                [third, third, third, 0, 0, 0],  # y z is a b and c
                [third, third, third, 0, 0, 0],
                [0, 0, 0, 1.0, 0, 0],  # w is nothing: </s>
            ]
        ),
    )
    assert counted.tolist() == [[True, True, True, True, False]]
    _, counted = batch_targets([targets_of(source, target, taken, offered | {(1, 2)})], (5, 6))
    assert counted.tolist() == [[True, True, True, False, False]], "a link that was left out is not learnt as null"


def test_it_learns_the_links_of_the_heads():
    """Of a model without a turn: what it is shown, it draws again, and nothing of the model has changed."""
    translator, pairs = tiny_translator("softmax"), toy_pairs(8)
    heads = Aligner(translator, AlignmentChoice(1, (0,), False))
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    reports = []
    short = fit(heads, pairs, steps=1, links="grow-diag", progress=lambda *report: reports.append(report))
    assert reports == [*((COMPUTING, n, len(pairs)) for n in range(1, len(pairs) + 1)), (FITTING, 1, 1)]
    long = fit(heads, pairs, steps=80, links="grow-diag")
    assert len(long.losses) == LAYERS + 1
    shown = list(align_corpus(heads, pairs, None, "grow-diag"))

    def overlap(aligner):
        drawn = list(align_corpus(aligner, pairs))
        common = sum(len(a & b) for a, b in zip(drawn, shown, strict=True))
        return 2 * common / sum(len(a) + len(b) for a, b in zip(drawn, shown, strict=True))

    assert overlap(long.aligner) > overlap(short.aligner) + 0.1
    assert all(tensor.equal(before[name]) for name, tensor in translator.model.state_dict().items())
    assert all(parameter.grad is None for parameter in translator.model.parameters())


def test_one_pair_is_too_few_and_heads_without_links_teach_nothing():
    with pytest.raises(ValueError, match="wanted at least two"):
        fit(Aligner(tiny_translator()), toy_pairs(1))
    flat = Aligner(tiny_translator("softmax"), AlignmentChoice(0, None, False))
    with pytest.raises(ValueError, match="draw no links"):
        fit(flat, toy_pairs(4), links="product")  # an untrained softmax gives every word a little


def test_a_comma_at_a_word_is_learnt_as_a_word_of_its_own():
    ((sides, (taken, offered)),) = head_links(Aligner(tiny_translator()), [("a cat, a dog", "ein Hund.")], "union")
    assert [len(words(side.pieces)) for side in sides] == [5, 3]
    assert [words(side.pieces)[-1] for side in sides] == ["dog", "."]
    assert taken == offered
    assert {s for s, _ in taken} <= set(range(5))
    assert {t for _, t in taken} <= set(range(3))
