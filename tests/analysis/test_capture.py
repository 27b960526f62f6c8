"""Captured weights are the weights the model computes, zeros included."""

import pytest
import torch

import rela
from rela.analysis.accumulator import Accumulator
from rela.analysis.capture import capture
from rela.analysis.nulls import null_rate
from rela.analysis.record import TYPES
from rela.analysis.sparsity import sparsity_rate
from rela.analysis.words import merge_record
from tests.tiny_models import tiny_translator, toy_pairs


def steep_softmax():
    """A softmax model whose scores lie hundreds apart, so that the exponential of many underflows to zero."""
    translator = tiny_translator.__wrapped__("softmax", seed=7)  # not the cached one, which others use
    layers = [*translator.model.encoder, *translator.model.decoder]
    attentions = [layer.attention for layer in layers] + [layer.cross for layer in translator.model.decoder]
    with torch.no_grad():
        for attention in attentions:
            attention.in_proj_weight.mul_(40)
    return translator


def test_softmax_weights_that_underflow_count_as_zero_and_leave_no_row_null():
    translator = steep_softmax()
    for records in capture(translator, toy_pairs(5)):
        for type in TYPES:
            record = records[type]
            rates = sparsity_rate(record)
            assert rates.max() > 0.05, "the scores lie far enough apart for zeros"
            for layer, weights in enumerate(record.weights):
                # the library's own count, on the same weights
                torch.testing.assert_close(rela.sparsity_rate(weights[None], record.allowed).double(), rates[layer])
            torch.testing.assert_close(record.weights.sum(-1), torch.ones(record.weights.shape[:-1]))
            assert not null_rate(record).any()


def test_zeros_of_softmax_reach_the_summary():
    sums = {type: Accumulator() for type in TYPES}
    for records in capture(steep_softmax(), toy_pairs(5)):
        for type in TYPES:
            sums[type].add(records[type])
    for type in TYPES:
        assert sums[type].summary().sparsity.max() > 0.05
        assert not sums[type].summary().null_rate.any()


def test_a_pair_alone_is_a_pair_among_others():
    """Bit for bit, so that one figure drawn alone is the report's."""
    translator, pairs = tiny_translator("rela-g"), toy_pairs(9)
    for pair, among in zip(pairs, capture(translator, pairs), strict=True):
        (alone,) = capture(translator, [pair])
        for type in TYPES:
            assert torch.equal(alone[type].weights, among[type].weights)


@pytest.mark.parametrize("tokenised", [False, True])
def test_links_count_words_as_people_do_around_a_no_break_space(tokenised):
    """Attention to both sides of it is attention to the one word that it is in."""
    translator = tiny_translator()
    source, target = "the dog\u00a0sees a cat", "der Hund sieht\u202feine Katze"
    (records,) = capture(translator, [(source, target)], ("cross",), tokenised=tokenised)
    merged = merge_record(records["cross"])
    keys, queries = (["".join(word.split()) for word in side[:-1]] for side in (merged.keys, merged.queries))
    assert keys == ["the", "dogsees", "a", "cat"]
    assert queries == ["der", "Hund", "siehteine", "Katze"]
    (plain,) = capture(translator, [(source.replace("\u00a0", " "), target.replace("\u202f", " "))], ("cross",))
    apart = merge_record(plain["cross"]).weights
    joined = apart[..., 1] + apart[..., 2]
    torch.testing.assert_close(merged.weights[..., 0, 1], joined[..., 0])
