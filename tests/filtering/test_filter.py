"""The corpus filter: the files it writes, bad lines, thresholds."""

import csv
import json
import warnings

import pytest

from rela.filtering.filter import filter_corpus
from rela.filtering.pair_scores import score_pairs
from rela.filtering.ranking import Criterion
from rela.filtering.score_corpus import PROBLEMS, score_corpus
from rela.report.filter_page import write_filter_page
from tests.filtering.corpora import ATTACK, rows, write_lines
from tests.tiny_models import tiny_translator, toy_pairs


def test_scores_are_those_of_the_pairs_in_order(corpus, tmp_path):
    pairs, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=7)
    filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion())
    found = rows(tmp_path / "s.tsv")
    assert [int(row["line"]) for row in found] == list(range(1, 42))
    for row, score in zip(found, score_pairs(tiny_translator(), pairs), strict=True):
        assert (float(row["null_rate"]), float(row["log_prob"])) == (score.null_rate, score.log_prob)
    by_rank = sorted(found, key=lambda row: int(row["rank"]))
    assert [int(row["rank"]) for row in by_rank] == list(range(1, 42))
    rates = [float(row["null_rate"]) for row in by_rank]
    assert rates == sorted(rates)
    assert len(set(rates)) > 5


def test_bad_lines_are_named_and_never_kept(tmp_path):
    good = toy_pairs(3)
    long = "a " * 200
    sources = [good[0][0], "", b"\xff\xfe\n", good[1][0], "x\0y", long, good[2][0]]
    targets = [good[0][1], good[1][1], "x", good[1][1], "x", "x", good[2][1]]
    source, target = write_lines(tmp_path / "s", sources), write_lines(tmp_path / "t", targets)
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(keep=1.0))
    found = rows(tmp_path / "s.tsv")
    assert [row["problem"] for row in found] == ["", "empty", "not UTF-8", "", "NUL character", PROBLEMS[-1], ""]
    assert [row["kept"] for row in found] == ["1", "0", "0", "1", "0", "0", "1"]
    assert [row["null_rate"] != "" for row in found] == [True, False, False, True, False, False, True]
    assert (tmp_path / "s.kept.source").read_text().splitlines() == [source for source, _ in good]
    assert summary.kept == 3
    assert sum(summary.problems.values()) == 4


def test_kept_pairs_stay_byte_for_byte_and_in_order(corpus, tmp_path):
    pairs, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(keep=0.5), text=True)
    found = rows(tmp_path / "s.tsv")
    kept = [int(row["line"]) - 1 for row in found if row["kept"] == "1"]
    assert len(kept) == summary.kept == 21  # 20.5 of 41, rounded up
    assert (tmp_path / "s.kept.source").read_text().splitlines() == [pairs[i][0] for i in kept]
    assert (tmp_path / "s.kept.target").read_text().splitlines() == [pairs[i][1] for i in kept]
    worst = max(float(found[i]["null_rate"]) for i in kept)
    assert summary.threshold == worst
    assert worst <= min(float(row["null_rate"]) for row in found if row["kept"] == "0")
    assert found[0]["source"] == pairs[0][0]
    assert found[-1]["target"] == ATTACK[1].replace("\t", " ")
    assert json.loads((tmp_path / "s.summary.json").read_text())["kept"] == 21


def test_a_table_with_text_has_a_row_a_pair_whatever_the_text_is(tmp_path):
    """Readers of tables take a carriage return for the end of a row, and a table is UTF-8."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"ein\tHund\rschl\xc3\xa4ft\nein \xff Hund\nein\0 Hund\n")
    target.write_bytes(b"a dog\ra dog\r\na dog\na dog\n")
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(keep=1.0), text=True)
    with open(tmp_path / "s.tsv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    assert [row["source"] for row in found] == ["ein Hund schläft", "ein \ufffd Hund", "ein  Hund"]
    assert [row["target"] for row in found] == ["a dog a dog", "a dog", "a dog"]
    assert (tmp_path / "s.kept.source").read_bytes() == b"ein\tHund\rschl\xc3\xa4ft\n"


@pytest.mark.parametrize("by", ["null-rate", "log-prob", "both"])
def test_the_threshold_of_a_kept_share_keeps_at_least_that_share(corpus, tmp_path, by):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    first = filter_corpus(store, source, target, tmp_path / "a.tsv", Criterion(by=by, keep=0.3))
    second = filter_corpus(store, source, target, tmp_path / "b.tsv", Criterion(by=by, threshold=first.threshold))
    one, two = ({row["line"] for row in rows(tmp_path / name) if row["kept"] == "1"} for name in ("a.tsv", "b.tsv"))
    assert one <= two
    assert second.threshold == first.threshold


def test_ranked_is_best_first(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(by="log-prob"), ranked=True)
    values = [float(row["log_prob"]) for row in rows(tmp_path / "s.tsv")]
    assert values == sorted(values, reverse=True)
    with pytest.raises(ValueError, match="not ranked"):
        filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(), ranked=True, text=True)


def test_an_empty_corpus_is_an_empty_table(tmp_path):
    source, target = write_lines(tmp_path / "s", []), write_lines(tmp_path / "t", [])
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(keep=0.5))
    assert (summary.pairs, summary.kept) == (0, 0)
    write_filter_page(store, source, target, tmp_path / "p.html", summary)
    assert rows(tmp_path / "s.tsv") == []


def test_who_ranks_by_a_null_rate_that_is_not_there_is_told(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator("softmax"), source, target, tmp_path / "parts")
    with pytest.warns(UserWarning, match="no pair has null attention"):
        filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(keep=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filter_corpus(store, source, target, tmp_path / "s.tsv", Criterion(by="log-prob", keep=0.5))
