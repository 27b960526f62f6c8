"""Beam search against exhaustive search, against a second implementation, and against scripts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rela.decoding.beam import BLOCK, Hypothesis, beam_search, largest, length_penalty
from tests.decoding.scripted import BANNED, BOS, EOS, SPECIAL, Script, Table


def search(table: Table, limits: list[int], beam: int, alpha: float = 0.6) -> list[list[Hypothesis]]:
    sources = [[sentence] for sentence in range(len(limits))]
    return beam_search(table, sources, torch.tensor(limits), beam=beam, special=SPECIAL, alpha=alpha)


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [item.tokens for item in found] == [item.tokens for item in wanted]
    for one, two in zip(found, wanted, strict=True):
        assert one.log_prob == pytest.approx(two.log_prob, abs=1e-5)
        assert one.score == pytest.approx(two.score, abs=1e-5)


def test_a_scripted_model_is_followed():
    def step(tokens, position):
        log_probs = torch.full((len(tokens), 10), -10.0)
        log_probs[:, [5, 7, EOS][position]] = 0.0
        return log_probs, position + 1

    (best, *_), *_ = beam_search(Script(step, 0), [[9]], torch.tensor([6]), beam=1, special=SPECIAL)
    assert best == Hypothesis((5, 7), 0.0, 0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("row_multiple", [1, 8])
def test_a_beam_wide_enough_is_exhaustive_search(alpha, row_multiple):
    """All 2^4 prefixes fit into the beam, so nothing is pruned; sentences have limits of their own."""
    limits = [4, 1, 3, 0, 4]
    for seed in range(5):
        table = Table(seed, words=2, row_multiple=row_multiple)
        found = search(table, limits, beam=32, alpha=alpha)
        for sentence, limit in enumerate(limits):
            assert_same(found[sentence], table.exhaustive(sentence, limit, alpha)[:32])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 6),
    words=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.7]),
    limits=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    row_multiple=st.sampled_from([1, 4, 8]),
)
def test_beam_search_is_the_plain_one_that_never_stops_early(seed, beam, words, alpha, limits, row_multiple):
    table = Table(seed, words, row_multiple=row_multiple)
    for sentence, found in enumerate(search(table, limits, beam, alpha)):
        assert_same(found, table.plain_beam(sentence, limits[sentence], beam, alpha))


def test_beam_one_is_greedy():
    for seed in range(20):
        table, limits = Table(seed, words=6), [9, 5, 7]
        for sentence, found in enumerate(search(table, limits, beam=1)):
            tokens: list[int] = []
            while len(tokens) < limits[sentence]:
                token = int(table.log_probs((sentence, BOS, *tokens)).argmax())
                if token == EOS:
                    break
                tokens.append(token)
            log_prob = table.log_prob(sentence, tuple(tokens))
            assert_same(found, [Hypothesis(tuple(tokens), log_prob, log_prob / length_penalty(len(tokens) + 1, 0.6))])


def test_hypotheses_are_sorted_and_distinct():
    for seed in range(10):
        for found in search(Table(seed, words=4), [6, 3], beam=5):
            assert len(found) == 5
            assert len({item.tokens for item in found}) == 5
            assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
            assert not any(token in (*BANNED, EOS) for item in found for token in item.tokens)


def test_scores_are_log_probabilities_over_the_length_penalty_of_vaswani_et_al():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(25, 1.0) == pytest.approx(5.0)
    assert length_penalty(100, 0.0) == 1.0
    for found in search(Table(3, words=4), [6], beam=4, alpha=0.8)[0]:
        assert found.score == pytest.approx(found.log_prob / ((5 + len(found.tokens) + 1) / 6) ** 0.8, rel=1e-6)


def test_a_larger_alpha_never_gives_a_shorter_best_translation():
    for seed in range(10):
        table = Table(seed, words=2)
        lengths = [len(search(table, [4], beam=32, alpha=alpha)[0][0].tokens) for alpha in (0.0, 0.5, 1.0, 2.0)]
        assert lengths == sorted(lengths)


def test_banned_tokens_never_come_and_the_limit_holds():
    def step(tokens, state):
        log_probs = torch.log_softmax(torch.tensor([9.0, 9.0, -9.0, 1.0, 2.0]), -1)  # </s> is never wanted
        return log_probs.expand(len(tokens), -1).clone(), state

    for limit in (1, 5):
        (greedy,) = beam_search(Script(step), [[9]], torch.tensor([limit]), beam=1, special=SPECIAL)
        assert greedy[0].tokens == (4,) * limit
        (found,) = beam_search(Script(step), [[9]], torch.tensor([limit]), beam=3, special=SPECIAL)
        assert all(len(item.tokens) <= limit and set(item.tokens) <= {3, 4} for item in found)


@pytest.mark.parametrize(("beam", "multiple", "unit"), [(4, 8, 8), (1, 8, 8), (3, 8, 24), (5, 1, 5), (6, 8, 24)])
def test_finished_sentences_leave_and_the_rows_stay_a_multiple(beam, multiple, unit):
    """`unit` is the least common multiple: rows are whole sentences and whole blocks at once."""
    limits = [1, 2, 3, 4, 5, 6, 7, 8] * 3 + [8]
    table = Table(1, words=3, row_multiple=multiple)
    found = search(table, limits, beam)
    assert len(found) == len(limits), "padding is left out"
    assert all(rows % unit == 0 for rows in table.rows)
    assert len(limits) * beam <= table.rows[0] < len(limits) * beam + unit
    assert table.rows[-1] < table.rows[0]
    assert table.rows == sorted(table.rows, reverse=True)
    alone = Table(1, words=3)
    for sentence, limit in enumerate(limits):
        assert_same(found[sentence], alone.plain_beam(sentence, limit, beam, 0.6))


def test_a_model_that_gives_nan_ends():
    def step(tokens, state):
        return torch.full((len(tokens), 5), math.nan), state

    assert beam_search(Script(step), [[9]], torch.tensor([4]), beam=2, special=SPECIAL) == [[]]


@pytest.mark.parametrize("width", [5, BLOCK, 3 * BLOCK, 8 * BLOCK, 8 * BLOCK + 1, 9 * BLOCK - 1, 3001])
@pytest.mark.parametrize("count", [1, 4, 5])
def test_the_largest_of_blocks_are_the_largest(width, count):
    """Also where the best lie close together, and behind the last whole block."""
    values = torch.randn(6, width, generator=torch.Generator().manual_seed(width))
    values[1, -count:] += 10.0
    values[2, :count] += 10.0
    best, index = largest(values, count)
    wanted = values.sort(dim=1, descending=True)
    assert torch.equal(best, wanted.values[:, :count])
    assert torch.equal(index, wanted.indices[:, :count])
