"""Sampling follows the distribution, and a seed decides it for each sentence alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from rela.decoding.sampling import Draw, sample
from tests.decoding.scripted import BOS, EOS, SPECIAL, Script, Table


def draw(table: Table, limits: list[int], samples: int, seeds: list[int], temperature: float = 1.0, first: int = 0):
    sources = [[first + sentence] for sentence in range(len(limits))]
    return sample(
        table, sources, torch.tensor(limits), samples=samples, special=SPECIAL, seeds=seeds, draw=Draw(temperature)
    )


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_follow_the_distribution(temperature):
    """Every translation of at most 2 words comes as often as it should, to five standard deviations."""
    table, samples = Table(7, words=3), 20_000
    counts = Counter(item.tokens for item in draw(table, [2], samples, [1], temperature)[0])

    def chosen(prefix: tuple[int, ...]) -> torch.Tensor:
        return (table.log_probs((0, BOS, *prefix)) / temperature).softmax(-1).double()

    words = range(3, table.size)
    wanted = {(): float(chosen(())[EOS])}
    wanted |= {(a,): float(chosen(())[a] * chosen((a,))[EOS]) for a in words}
    wanted |= {(a, b): float(chosen(())[a] * chosen((a,))[b]) for a in words for b in words}  # then </s> is forced
    assert sum(wanted.values()) == pytest.approx(1.0)
    assert counts.keys() <= wanted.keys()
    for tokens, probability in wanted.items():
        deviation = (samples * probability * (1 - probability)) ** 0.5
        assert abs(counts[tokens] - samples * probability) < 5 * deviation + 1, tokens


def test_log_probabilities_are_those_of_the_model_whatever_the_temperature():
    table = Table(5, words=4)
    for temperature in (0.7, 1.0, 3.0):
        for item in draw(table, [6], 8, [3], temperature)[0]:
            assert item.log_prob == pytest.approx(table.log_prob(0, item.tokens), abs=1e-5)


def test_samples_are_reproducible_and_do_not_depend_on_the_batch():
    table = Table(2, words=5)
    limits, seeds = [5, 3, 6], [11, 12, 13]
    together = draw(table, limits, 4, seeds)
    assert together == draw(table, limits, 4, seeds)
    for sentence in range(3):
        assert draw(table, [limits[sentence]], 4, [seeds[sentence]], first=sentence)[0] == together[sentence]
    assert draw(table, limits, 4, [21, 22, 23]) != together
    assert draw(Table(2, words=5, row_multiple=8), limits, 4, seeds) == together, "padding rows change nothing"


def test_samples_come_most_probable_first_and_within_their_limit():
    for group, limit in zip(draw(Table(9, words=5), [1, 7], 30, [1, 2]), [1, 7], strict=True):
        assert [item.score for item in group] == sorted((item.score for item in group), reverse=True)
        assert max(len(item.tokens) for item in group) <= limit
        assert all(token >= 3 for item in group for token in item.tokens)


def test_the_models_own_table_is_not_written_to():
    shared = torch.log_softmax(torch.randn(6), -1)
    before = shared.clone()
    script = Script(lambda tokens, state: (shared.expand(len(tokens), -1), state))
    sample(script, [[9]], torch.tensor([4]), samples=2, special=SPECIAL, seeds=[1])
    assert torch.equal(shared, before)


def test_translators_draw_each_sample_independently(make_translator):
    """Asked for one sample, the translator draws one: the best of several would not follow the distribution."""
    translator = make_translator()
    lines = ["The dog sleeps ."] * 40
    drawn = [
        group[0] for group in translator.translate_nbest(lines, sampling=True, temperature=0.7, max_length_ratio=0.5)
    ]
    assert len({item.tokens for item in drawn}) > 20, "each line has random numbers of its own"
    again = translator.translate_nbest(lines, sampling=True, temperature=0.7, max_length_ratio=0.5, batch_tokens=1)
    assert [group[0] for group in again] == drawn
    other = translator.translate_nbest(lines, sampling=True, temperature=0.7, max_length_ratio=0.5, seed=2)
    assert not {item[0].tokens for item in other} <= {item.tokens for item in drawn}
    assert len(translator.translate_nbest(lines[:1], nbest=9, sampling=True, max_length_ratio=0.5)[0]) == 9


def test_any_integer_is_a_seed(make_translator):
    translator, lines = make_translator(), ["The dog sleeps .", "A cat"]

    def drawn(seed: int) -> list[tuple[int, ...]]:
        found = translator.translate_nbest(lines, sampling=True, max_length_ratio=0.5, seed=seed)
        return [group[0].tokens for group in found]

    assert drawn(3) == drawn(3)
    assert len({tuple(drawn(seed)) for seed in (3, 4, -4, 10**30)}) == 4
