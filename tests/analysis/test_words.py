"""Pieces to words: sums on the side looked at, means on the side that looks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.analysis.words import merge_record, merge_subwords, punctuation_apart, word_index, words

PIECES = st.lists(st.sampled_from(["▁a", "▁b", "c", "d", "▁"]), min_size=1, max_size=9)


def test_words_begin_at_the_mark():
    pieces = ["<s>", "inter", "view", "s", "▁", "ö", "▁.", "</s>"]
    assert word_index(pieces) == (0, 1, 1, 1, 2, 2, 3, 4)
    assert words(pieces) == ("<s>", "interviews", "ö", ".", "</s>")
    assert words([]) == ()


def test_punctuation_apart_is_words_of_their_own():
    pieces = ["▁the", "▁la", "w", ",", "▁(", "si", "c", ")", ".", "▁co", "-", "op", "▁it", "'", "s"]
    assert words(punctuation_apart(pieces)) == ("the", "law", ",", "(", "sic", ")", ".", "co-op", "it's")
    assert punctuation_apart(()) == ()
    assert words(punctuation_apart(["<s>", "▁", ",", "▁ja", ".", "</s>"])) == ("<s>", ",", "ja", ".", "</s>")


@pytest.mark.parametrize(
    "pieces",
    [
        ["▁ह", "ि", "न्द", "ी", "▁म", "े", "ं", "▁।"],  # vowels of Hindi are combining marks
        ["▁می", "\u200c", "خواهم", "▁."],  # a joiner that shows nothing
        ["▁100", "\u00a0", "000", "▁."],
    ],
)
def test_marks_and_joiners_within_words_are_no_punctuation(pieces):
    assert punctuation_apart(pieces) == tuple(pieces)
    assert words(punctuation_apart([*pieces[:-1], pieces[-1][1:]])) == words(pieces)


def test_merging_by_hand():
    weights = torch.tensor([[0.1, 0.2, 0.4], [0.3, 0.0, 0.5], [0.0, 0.6, 0.0]])
    merged = merge_subwords(weights, ["▁ver", "b", "</s>"], ["▁a", "b", "</s>"])
    # the first two rows are one word: ((0.1 + 0.2) + (0.3 + 0.0)) / 2 and (0.4 + 0.5) / 2
    torch.testing.assert_close(merged, torch.tensor([[0.3, 0.45], [0.6, 0.0]]))


@given(PIECES, PIECES, st.integers(0, 99))
def test_merging_keeps_distributions_and_null_rows(queries, keys, seed):
    scores = torch.randn(2, 3, len(queries), len(keys), generator=torch.Generator().manual_seed(seed))
    merged = merge_subwords(scores.softmax(-1), queries, keys)
    assert merged.shape == (2, 3, len(words(queries)), len(words(keys)))
    torch.testing.assert_close(merged.sum(-1), torch.ones(merged.shape[:-1]))

    rectified = scores.relu()
    rectified[:, :, [word == 0 for word in word_index(queries)]] = 0.0
    merged = merge_subwords(rectified, queries, keys)
    assert (merged[:, :, 0] == 0).all()
    for row, word in enumerate(word_index(queries)):
        for column, key in enumerate(word_index(keys)):
            assert ((merged[:, :, word, key] > 0) | (rectified[:, :, row, column] == 0)).all()


@given(st.integers(1, 6), st.integers(1, 6))
def test_whole_words_stay_as_they_are(T, S):
    weights = torch.rand(2, T, S)
    assert torch.equal(merge_subwords(weights, ["▁w"] * T, ["▁w"] * S), weights)


def test_half_precision_is_merged_in_full():
    ones = torch.ones(1, 600, dtype=torch.bfloat16)
    merged = merge_subwords(ones, ["▁a"], ["▁b"] + ["c"] * 599)  # bfloat16 stops counting at 256
    assert merged.dtype == torch.float32
    assert merged.item() == 600


def test_a_merged_decoder_record_knows_what_was_allowed(make_record):
    weights = torch.ones(1, 1, 3, 3).tril()
    record = make_record(weights, type="decoder", queries=["▁a", "b", "</s>"], keys=["<s>", "▁a", "b"])
    merged = merge_record(record)
    assert merged.queries == ("ab", "</s>")
    assert merged.keys == ("<s>", "ab")
    # the second piece of `ab` may look at the first one, so the word may look at itself
    assert merged.allowed.tolist() == [[True, True], [True, True]]
    torch.testing.assert_close(merged.weights[0, 0], torch.tensor([[1.0, 0.5], [1.0, 2.0]]))


def test_merging_wants_as_many_pieces_as_rows():
    with pytest.raises((RuntimeError, IndexError)):
        merge_subwords(torch.zeros(2, 2), ["▁a"], ["▁a", "▁b"])
