"""The filter's page shows the best and the worst pairs."""

from xml.etree import ElementTree

from rela.filtering.filter import filter_corpus
from rela.filtering.ranking import Criterion
from rela.filtering.score_corpus import score_corpus
from rela.report.filter_page import write_filter_page
from tests.filtering.corpora import ATTACK, rows, write_corpus
from tests.tiny_models import tiny_translator


def test_the_page_shows_best_and_worst_as_text(tmp_path):
    _, source, target = write_corpus(tmp_path)
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion())
    write_filter_page(store, source, target, tmp_path / "p.html", summary, sample=20)
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    tree = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    assert not list(tree.iter("script"))
    assert not list(tree.iter("img"))
    best, worst = list(tree.iter("table"))[1:]
    ranked = sorted(rows(tmp_path / "s.tsv"), key=lambda row: int(row["rank"]))
    for table, expected in ((best, ranked[:20]), (worst, ranked[-20:])):
        cells = [[cell.text for cell in row.iter("td")] for row in table.iter("tr")][1:]
        assert [row[0] for row in cells] == [row["line"] for row in expected]
    assert ATTACK[0] in [cell.text for cell in tree.iter("td")]
