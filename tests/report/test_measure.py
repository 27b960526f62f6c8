"""What is measured for a report, and what cannot be."""

import pytest
import torch

from rela.evaluation.alignment import GoldLinks
from rela.report.measure import measure
from rela.report.parallel_text import ParallelText
from rela.report.results import PARTS, TRUE
from rela.toy import generate
from tests.tiny_models import tiny_translator, toy_pairs


def gold_of(toy):
    return [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in toy]


@pytest.fixture(scope="module")
def toy():
    return list(generate(8, seed=5))


def test_without_gold_links_there_is_no_alignment():
    report = measure({"m": tiny_translator()}, ParallelText(toy_pairs(3), noise={}), examples=0)
    assert report.models["m"].alignment is None
    assert list(report.models["m"].detection) == ["shuffled"]
    assert "figure4_aer" in report.numbers()
    assert report.numbers()["figure4_aer"] == []


def test_gold_links_may_belong_to_other_text(toy):
    pairs = [(pair.source, pair.target) for pair in toy]
    text = ParallelText(toy_pairs(3, seed=9), gold_of(toy), gold_pairs=pairs, noise={})
    report = measure({"m": tiny_translator()}, text, examples=1)
    assert report.models["m"].alignment is not None
    assert report.models["m"].examples[0].gold is None


def test_one_shuffled_set_for_every_figure():
    """Shuffled pairs that are given are those of the null rate (Figure 6) and of the noise figure alike."""
    models = {"m": tiny_translator()}
    pairs = toy_pairs(5)
    given = [(source, pairs[(i + 2) % 5][1]) for i, (source, _) in enumerate(pairs)]
    report = measure(models, ParallelText(pairs, noise={"shuffled": given}), examples=0)
    alone = measure(models, ParallelText(given), (TRUE,))
    assert torch.equal(report.shuffled["m"]["cross"].null_rate, alone.true["m"]["cross"].null_rate)
    made = measure(models, ParallelText(pairs, seed=3), examples=0)
    again = measure(models, ParallelText(pairs, noise={"shuffled": ParallelText(pairs, seed=3).shuffled}), examples=0)
    assert made.models["m"].detection["shuffled"] == again.models["m"].detection["shuffled"]
    assert torch.equal(made.shuffled["m"]["cross"].null_rate, again.shuffled["m"]["cross"].null_rate)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_measured_alone_is_the_part_of_the_whole(part, toy):
    text = ParallelText([(pair.source, pair.target) for pair in toy], gold_of(toy))
    models = {"m": tiny_translator()}
    whole, alone = (measure(models, text, parts, examples=1).models["m"] for parts in (PARTS, (part,)))
    assert alone.alignment == (whole.alignment if part == "alignment" else None)
    assert alone.detection == (whole.detection if part == "detection" else {})
    assert [example.line for example in alone.examples] == [e.line for e in whole.examples if part == "examples"]
    if part in ("true", "shuffled"):
        for type, summary in getattr(alone, part).items():
            assert torch.equal(summary.sparsity, getattr(whole, part)[type].sparsity)
            assert torch.equal(summary.diversity, getattr(whole, part)[type].diversity)
    if part == "diversity":
        for temperature, by_type in whole.diversity.items():
            assert all(torch.equal(values, alone.diversity[temperature][type]) for type, values in by_type.items())
    if part == "classes":
        assert list(alone.nulls_by_class) == list(whole.nulls_by_class)


def test_what_cannot_be_measured_is_said(toy):
    models = {"m": tiny_translator()}
    with pytest.raises(ValueError, match="no model"):
        measure({}, ParallelText(toy_pairs(3)))
    with pytest.raises(ValueError, match="the text has no sentence pair"):
        measure(models, ParallelText([]), {TRUE})
    with pytest.raises(ValueError, match="1 sentence pairs; at least two"):
        measure(models, ParallelText(toy_pairs(1)))
    far = GoldLinks(frozenset({(90, 1)}), frozenset({(90, 1)}))
    with pytest.raises(ValueError, match="sentence 2: gold link 90-1 is outside"):
        measure(models, ParallelText(toy_pairs(2), [GoldLinks(frozenset(), frozenset()), far], noise={}))
