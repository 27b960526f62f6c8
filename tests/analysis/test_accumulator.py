"""Sums over a test set: one record gives the measure itself, several give the measure of all their queries."""

import pytest
import torch

from rela.analysis.accumulator import Accumulator
from rela.analysis.diversity import head_diversity
from rela.analysis.nulls import null_rate
from rela.analysis.sink import sink_mass
from rela.analysis.sparsity import sparsity_rate

MEASURES = {"sparsity": sparsity_rate, "null_rate": null_rate, "sink_mass": sink_mass, "diversity": head_diversity}


@pytest.mark.parametrize("type", ["encoder", "decoder", "cross"])
def test_one_record_gives_the_measures(random_record, type):
    record = random_record(0, type=type, queries=6, keys=6)
    accumulator = Accumulator()
    accumulator.add(record)
    summary = accumulator.summary()
    for name, measure in MEASURES.items():
        torch.testing.assert_close(getattr(summary, name), measure(record), msg=name)
    assert (summary.kind, summary.type, summary.sentences, summary.queries) == ("rela-g", type, 1, 6)


def test_several_records_weigh_by_their_pairs_and_queries(random_record):
    records = [random_record(seed, queries=3 + 4 * seed, keys=5 + seed) for seed in range(3)]
    accumulator = Accumulator(temperature=0.5)
    for record in records:
        accumulator.add(record)
    summary = accumulator.summary()

    def mean(measure, size):
        return sum(measure(r) * size(r) for r in records) / sum(size(r) for r in records)

    torch.testing.assert_close(summary.sparsity, mean(sparsity_rate, lambda r: r.weights[0, 0].numel()))
    torch.testing.assert_close(summary.null_rate, mean(null_rate, lambda r: len(r.queries)))
    torch.testing.assert_close(summary.diversity, mean(lambda r: head_diversity(r, 0.5), lambda r: len(r.queries)))


def test_merging_parts_is_adding_all(random_record):
    whole, first, second = Accumulator(), Accumulator(), Accumulator()
    for seed in range(5):
        record = random_record(seed, queries=4 + seed)
        whole.add(record)
        (first if seed % 2 else second).add(record)
    first.merge(second)
    first.merge(Accumulator())  # a process that got no sentence
    for name in MEASURES:
        torch.testing.assert_close(getattr(first.summary(), name), getattr(whole.summary(), name))
    assert (first.summary().sentences, first.summary().queries) == (5, whole.queries)


def test_no_matrix_is_kept(random_record):
    accumulator = Accumulator()
    for seed in range(3):
        accumulator.add(random_record(seed, layers=2, heads=3, queries=40, keys=50))
    kept = sum(value.numel() for value in vars(accumulator)["_sums"].values())
    assert kept <= 2 * 3 * len(MEASURES)


def test_unlike_records_do_not_mix(random_record):
    accumulator = Accumulator()
    with pytest.raises(ValueError, match="nothing to sum up"):
        accumulator.summary()
    accumulator.add(random_record(0))
    for other in (random_record(0, kind="softmax"), random_record(0, type="encoder"), random_record(0, layers=2)):
        with pytest.raises(ValueError, match="among others of another sort"):
            accumulator.add(other)
    with pytest.raises(ValueError, match=r"temperatures 1\.0 and 0\.5"):
        accumulator.merge(Accumulator(temperature=0.5))
