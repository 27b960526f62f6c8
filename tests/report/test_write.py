"""The report from start to end on untrained models: files, numbers that must hold, and text that attacks."""

import csv
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

from rela.analysis.capture import capture
from rela.analysis.diversity import head_diversity
from rela.analysis.links import AlignmentTable
from rela.analysis.nulls import null_rate
from rela.evaluation.alignment import GoldLinks
from rela.filtering.noise import shuffled_targets
from rela.report.figures import TABLES
from rela.report.measure import TEMPERATURES
from rela.report.parallel_text import ParallelText
from rela.report.write import analyse
from rela.toy import generate
from tests.tiny_models import HEADS, LAYERS, tiny_translator

ATTACK = "<script>alert('x')</script> & \"quotes\" مرحبا 😀"
TYPES = ("encoder", "decoder", "cross")


def gold_of(toy):
    return [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in toy]


@pytest.fixture(scope="module")
def toy():
    return list(generate(8, seed=5))


@pytest.fixture(scope="module")
def written(toy, tmp_path_factory):
    """One report of two models, with an attacking pair and an attacking name among them."""
    out = tmp_path_factory.mktemp("report")
    pairs = [(pair.source, pair.target) for pair in toy]
    pairs.append((ATTACK, ATTACK))
    gold = [*gold_of(toy), GoldLinks(frozenset(), frozenset())]
    models = {"softmax": tiny_translator("softmax"), "<i>rela</i>": tiny_translator("rela-g")}
    stages = []
    report = analyse(
        models,
        ParallelText(pairs, gold),
        out,
        examples=1,
        settings={"command": "rela analyse <b>"},
        progress=lambda stage, done, total: stages.append((stage, done, total)),
    )
    return report, out, pairs, stages


def rows(out, name):
    with open(out / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_table_is_there_and_reads_back(written):
    _, out, pairs, _ = written
    for name in TABLES:
        assert rows(out, name), name
    assert len(rows(out, "summary")) == 2
    assert len(rows(out, "figure3_sparsity")) == 2 * 3 * LAYERS
    assert len(rows(out, "figure4_aer")) == 2 * 2 * LAYERS
    assert len(rows(out, "table6_diversity")) == 2 * len(TEMPERATURES)
    assert len(rows(out, "heads")) == 2 * 3 * LAYERS * HEADS
    assert len(rows(out, "noise")) == 2 * 4
    assert len(rows(out, "pairs")) == 2 * len(pairs)


def test_every_picture_is_there_as_png_and_svg(written):
    _, out, _, _ = written
    stems = {path.stem for path in out.glob("*.png")}
    assert stems == {path.stem for path in out.glob("*.svg")}
    assert {"figure3_sparsity", "figure4_aer", "figure5_diversity", "figure6_null_rate", "sink", "noise"} <= stems
    assert len([stem for stem in stems if stem.startswith("figure7_")]) == 2
    assert len([stem for stem in stems if stem.startswith("figure10_")]) == 1, "softmax has no null attention to show"
    for path in out.glob("*.svg"):
        ElementTree.parse(path)


def test_json_and_csv_say_the_same(written):
    report, out, _, _ = written
    numbers = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert numbers == json.loads(json.dumps(report.numbers()))
    assert [float(row["sparsity"]) for row in rows(out, "figure3_sparsity")] == [
        row["sparsity"] for row in numbers["figure3_sparsity"]
    ]
    assert numbers["settings"]["models"]["softmax"]["cross_attention"] == "softmax"


def test_softmax_is_never_sparse_and_never_null(written):
    report, *_ = written
    softmax = report.models["softmax"]
    for type in TYPES:
        assert not softmax.true[type].sparsity.any()
        assert not softmax.true[type].null_rate.any()
        assert not softmax.shuffled[type].null_rate.any()
    for found in softmax.detection.values():
        assert found["null_rate"] == 0.5, "equal scores find nothing"
    rela = report.models["<i>rela</i>"]
    assert bool((rela.true["cross"].sparsity > 0.2).all())


def test_numbers_agree_with_the_measures_pair_by_pair(written):
    """Means over queries, worked out from the records one at a time."""
    report, _, pairs, _ = written
    model, found = tiny_translator("rela-g"), report.models["<i>rela</i>"]
    records = [item["cross"] for item in capture(model, pairs, ("cross",))]
    queries = torch.tensor([len(record.queries) for record in records], dtype=torch.float64)

    def mean(values):
        return (torch.stack(values) * queries.view(-1, *[1] * values[0].dim())).sum(0) / queries.sum()

    torch.testing.assert_close(found.true["cross"].null_rate, mean([null_rate(record) for record in records]))
    for temperature in TEMPERATURES:
        expected = mean([head_diversity(record, temperature) for record in records])
        torch.testing.assert_close(found.diversity[temperature]["cross"], expected)
    shuffled = [null_rate(item["cross"]) for item in capture(model, shuffled_targets(pairs, 1), ("cross",))]
    lengths = [len(item["cross"].queries) for item in capture(model, shuffled_targets(pairs, 1), ("cross",))]
    expected = sum(rate * length for rate, length in zip(shuffled, lengths, strict=True)) / sum(lengths)
    torch.testing.assert_close(found.shuffled["cross"].null_rate, expected)


def test_alignment_is_that_of_the_table(written, toy):
    report, _, pairs, _ = written
    table = AlignmentTable(shifted=True)
    gold = [*gold_of(toy), GoldLinks(frozenset(), frozenset())]
    for records, links in zip(capture(tiny_translator("rela-g"), pairs, ("cross",)), gold, strict=True):
        table.add(records["cross"], links)
    assert report.models["<i>rela</i>"].alignment[True] == table.scores()
    row = report.table()[1]
    layer, head = table.scores().best_head
    assert row["aer_best_head_shifted"] == table.scores().heads[layer][head].aer
    assert row["best_head_shifted"] == f"{layer + 1}.{head + 1}"


class Links(HTMLParser):
    """Tags, and what a page refers to."""

    def __init__(self):
        super().__init__()
        self.tags, self.targets, self.alternatives = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href"):
                self.targets.append(value)
        if tag == "img":
            self.alternatives.append(dict(attributes)["alt"])


def test_the_page_is_well_formed_escaped_and_refers_only_to_files_beside_it(written):
    _, out, _, _ = written
    text = (out / "index.html").read_text(encoding="utf-8")
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    page = Links()
    page.feed(text)
    assert "script" not in page.tags
    assert "i" not in page.tags
    assert "&lt;i&gt;rela&lt;/i&gt;" in text
    assert len(page.targets) > 20
    anchors = {target for target in page.targets if target.startswith("#")}
    assert all((out / target).is_file() for target in set(page.targets) - anchors)
    assert anchors == {f"#{name}" for name in re.findall(r'<h2 id="([^"]*)"', text)}, "every heading is in the contents"
    assert all(page.alternatives)
    assert "rela plot" not in text, "no command line made this report, so none draws its pictures"
    assert "rela analyse &lt;b&gt;" in text


def test_progress_ends_at_its_total(written):
    *_, stages = written
    last = {stage: (done, total) for stage, done, total in stages}
    assert all(done == total for done, total in last.values() if total is not None)
    assert "softmax: true pairs" in last
