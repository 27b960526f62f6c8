"""Links from cross attention: rows normal and shifted, words, null rows, and the table against gold."""

import pytest
import torch

from rela.analysis.links import (
    AlignmentTable,
    best_source,
    head_links,
    layer_attention,
    layer_links,
    matrix_links,
    word_weights,
)
from rela.evaluation.alignment import GoldLinks, alignment_error_rate


def gold(links):
    return GoldLinks(frozenset(links), frozenset(links))


def test_each_target_word_takes_its_heaviest_source_word():
    assert matrix_links(torch.tensor([[0.1, 0.9], [0.0, 0.0], [0.7, 0.2]])) == {(1, 0), (0, 2)}


def test_null_rows_and_rows_without_a_positive_weight_link_to_nothing():
    assert matrix_links(torch.tensor([[0.0, 0.0], [-0.1, -0.2], [-0.0, 0.0]])) == frozenset()
    assert matrix_links(torch.zeros(3, 0)) == frozenset()


def test_the_first_of_equal_weights_wins():
    assert best_source(torch.tensor([[0.5, 0.5, 0.2], [0.0, 0.3, 0.3]])).tolist() == [0, 1]


@pytest.fixture
def record(make_record):
    """y₁ is output while looking at x₂ and input while looking at x₁; y₂ the other way round."""
    weights = torch.tensor([[[[0.0, 1.0, 9.0], [1.0, 0.5, 9.0], [0.0, 0.25, 0.0]]]])
    return make_record(weights)


def test_normal_attention_reads_the_step_that_outputs_a_token(record):
    assert head_links(record, 0, 0) == {(1, 0), (0, 1)}


def test_shifted_attention_reads_the_step_that_takes_it_as_input(record):
    assert head_links(record, 0, 0, shifted=True) == {(0, 0), (1, 1)}


def test_the_end_symbol_is_no_link_but_hides_none(record):
    assert word_weights(record).shape == (1, 1, 2, 2)
    assert len(head_links(record, 0, 0)) == 2  # although </s> has the largest weight of both rows


def test_subwords_are_merged_before_the_argmax(make_record):
    keys = ["▁a", "▁b", "c", "</s>"]
    weights = torch.tensor([[[[0.4, 0.3, 0.3, 0.0], [0.5, 0.2, 0.3, 0.0], [0.0, 0.0, 0.0, 1.0]]]])
    record = make_record(weights, kind="softmax", queries=["▁y", "z", "</s>"], keys=keys)
    torch.testing.assert_close(word_weights(record)[0, 0], torch.tensor([[0.45, 0.55]]))
    assert head_links(record, 0, 0) == {(1, 0)}  # no piece alone outweighs `a`


def test_layer_attention_is_the_mean_over_heads(make_record):
    heads = torch.tensor([[[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]]])
    record = make_record(heads)
    assert layer_links(record, 0) == {(1, 0)}
    torch.testing.assert_close(layer_attention(record.weights)[0, 0], torch.tensor([0.5, 1.5, 0.0]))


def test_the_table_agrees_with_scoring_each_head_alone(random_record):
    records = [random_record(seed, layers=2, heads=3, queries=5 + seed, keys=6) for seed in range(3)]
    truths = [gold({(t % 5, t) for t in range(len(record.queries) - 1)}) for record in records]
    for shifted in (False, True):
        table = AlignmentTable(shifted)
        for record, truth in zip(records, truths, strict=True):
            table.add(record, truth)
        scores = table.scores()
        for layer in range(2):
            links = [layer_links(record, layer, shifted) for record in records]
            assert scores.layers[layer] == alignment_error_rate(links, truths)
            for head in range(3):
                links = [head_links(record, layer, head, shifted) for record in records]
                assert scores.heads[layer][head] == alignment_error_rate(links, truths)


def test_the_best_head_of_each_layer(make_record):
    """Layer 0: head 1 draws the diagonal. Layer 1: head 0 draws half of it. The other heads look at nothing."""
    weights = torch.zeros(2, 2, 5, 5)
    weights[0, 1, range(4), range(4)] = 1.0
    weights[1, 0, range(2), range(2)] = 1.0
    table = AlignmentTable()
    table.add(make_record(weights), gold({(word, word) for word in range(4)}))
    scores = table.scores()
    assert scores.best_heads == (1, 0)
    assert scores.best_head == (0, 1)
    assert scores.heads[0][1].aer == 0
    assert scores.heads[0][0].aer == 1
    half = 1 - 4 / 6  # |A| = 2, |S| = 4, both links right
    assert scores.average_of_best_heads == pytest.approx(half / 2)
    assert scores.average_of_layers == pytest.approx(half / 2)  # the idle head changes no argmax


def test_misfits_are_named(make_record, record):
    with pytest.raises(ValueError, match="cross attention; the record holds 'encoder'"):
        word_weights(make_record(torch.zeros(1, 1, 2, 2), type="encoder"))
    with pytest.raises(ValueError, match="named by what they output"):
        word_weights(make_record(torch.zeros(1, 1, 2, 2), queries=["<s>", "▁y"]))
    table = AlignmentTable()
    with pytest.raises(ValueError, match="gold link 1-2 is outside 2 source and 2 target words"):
        table.add(record, gold({(1, 2)}))
    with pytest.raises(ValueError, match="nothing to score"):
        table.scores()
    table.add(record, gold({(1, 1)}))
    with pytest.raises(ValueError, match="a record of 2 layers and 1 heads"):
        table.add(make_record(torch.zeros(2, 1, 2, 2)), gold(()))


def test_a_sentence_of_nothing_but_its_end(make_record):
    record = make_record(torch.ones(1, 1, 1, 1))
    assert head_links(record, 0, 0) == frozenset()
