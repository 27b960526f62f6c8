"""Minimum length, n-grams not repeated and target prefixes: search finds what exhaustive search finds under them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from rela.decoding.beam import beam_search
from rela.decoding.constraints import Constraints, forbid_repetition, likely
from rela.decoding.sampling import Draw, sample
from tests.decoding.scripted import EOS, SPECIAL, Table

LIMITS = [4, 3, 4]
CASES = [
    Constraints(min_length=2),
    Constraints(min_length=3, no_repeat_ngram=2),
    Constraints(no_repeat_ngram=1),
    Constraints(prefixes=[(4, 4), (), (3, 4, 3)]),
    Constraints(prefixes=[(4, 4), (3,), (3, 4, 3)], min_length=3, no_repeat_ngram=2),
]


def allowed(tokens: tuple[int, ...], prefix: tuple[int, ...], constraints: Constraints) -> bool:
    """The constraints in one line each; what a prefix repeats is its own affair."""
    n = constraints.no_repeat_ngram
    grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
    repeats = any(gram in grams[:i] for i, gram in enumerate(grams) if i + n > len(prefix))
    return tokens[: len(prefix)] == prefix and len(tokens) >= constraints.min_length and not repeats


@pytest.mark.parametrize("constraints", CASES, ids=str)
@pytest.mark.parametrize("row_multiple", [1, 8])
def test_a_wide_beam_finds_what_exhaustive_search_finds(constraints, row_multiple):
    table, beam = Table(3, words=3, row_multiple=row_multiple), 81
    found = beam_search(
        table, [[0], [1], [2]], torch.tensor(LIMITS), beam=beam, special=SPECIAL, alpha=0.6, constraints=constraints
    )
    for sentence, hypotheses in enumerate(found):
        prefix = tuple(constraints.prefixes[sentence]) if constraints.prefixes else ()
        wanted = [
            item
            for item in table.exhaustive(sentence, LIMITS[sentence], 0.6)
            if allowed(item.tokens, prefix, constraints)
        ]
        assert len(wanted) > 1
        assert [item.tokens for item in hypotheses] == [item.tokens for item in wanted[:beam]]
        for got, want in zip(hypotheses, wanted, strict=False):
            assert got.log_prob == pytest.approx(want.log_prob, abs=1e-5)


@pytest.mark.parametrize("constraints", CASES, ids=str)
def test_draws_keep_to_the_constraints(constraints):
    found = sample(
        Table(5, words=3, row_multiple=8),
        [[0], [1], [2]],
        torch.tensor(LIMITS),
        samples=20,
        special=SPECIAL,
        seeds=[1, 2, 3],
        constraints=constraints,
    )
    for sentence, draws in enumerate(found):
        prefix = tuple(constraints.prefixes[sentence]) if constraints.prefixes else ()
        assert all(allowed(item.tokens, prefix, constraints) for item in draws)
        assert len({item.tokens for item in draws}) > 1


def test_no_constraints_are_none():
    assert Constraints().are_none
    assert not Constraints(prefixes=[()]).are_none


def test_repetition_is_what_would_come_twice():
    history = torch.tensor([[5, 6, 7, 5, 6], [5, 5, 5, 5, 5]])
    log_probs = torch.zeros(2, 9)
    forbid_repetition(log_probs, history, 3)
    assert [row.nonzero().flatten().tolist() for row in log_probs.isneginf()] == [[7], [5]]
    log_probs = torch.zeros(2, 9)
    forbid_repetition(log_probs, history, 6)
    assert log_probs.eq(0).all(), "too short to repeat six"


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.6), (3, 1.0), (3, 0.7), (1, 1.0), (50, 1.0), (0, 1e-9)])
def test_the_likely_are_those_of_a_sorted_list(top_k, top_p):
    log_probs = torch.randn(5, 9, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    log_probs[0] = math.log(1 / 9)  # equals: the first of the vocabulary come first
    for row, got in zip(log_probs, likely(log_probs, top_k, top_p), strict=True):
        order = sorted(range(9), key=lambda token: (-float(row[token]), token))[: top_k or 9]
        total = sum(math.exp(row[token]) for token in order)
        kept, held = [], 0.0
        for token in order:
            if held / total < top_p - 1e-12:
                kept.append(token)
            held += math.exp(row[token])
        assert got.isfinite().nonzero().flatten().tolist() == sorted(kept)
        assert torch.equal(got[kept], row[kept])


def test_all_of_the_probability_is_every_token():
    """Also those that are too improbable to change a sum of the others."""
    scores = torch.tensor([[-100.0, 0.0, -200.0]])
    assert torch.equal(likely(scores, 0, 1.0), scores)


def test_draws_of_the_likely_follow_their_distribution():
    """First words, of two: as often as the renormalised distribution says, to five standard deviations."""
    table, samples = Table(7, words=5), 4000
    draws = sample(
        table,
        [[0]],
        torch.tensor([1]),
        samples=samples,
        special=SPECIAL,
        seeds=[1],
        draw=Draw(temperature=0.8, top_k=2),
    )[0]
    scores = table.log_probs((0, 1)) / 0.8
    best = scores.topk(2).indices.tolist()
    share = scores[best].softmax(-1).double()
    for token, probability in zip(best, share.tolist(), strict=True):
        tokens = () if token == EOS else (token,)
        count = sum(item.tokens == tokens for item in draws)
        assert abs(count - samples * probability) < 5 * math.sqrt(samples * probability * (1 - probability))
    assert len({item.tokens for item in draws}) == 2


def test_greedy_search_keeps_to_its_constraints():
    for min_length, ngram in itertools.product((0, 3), (0, 1)):
        constraints = Constraints(min_length=min_length, no_repeat_ngram=ngram)
        (found,) = beam_search(
            Table(4, words=4), [[0]], torch.tensor([4]), beam=1, special=SPECIAL, constraints=constraints
        )[0]
        assert allowed(found.tokens, (), constraints)
