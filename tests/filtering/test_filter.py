"""The corpus filter: order, thresholds, bad lines, and the same bytes however often it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rela.filtering import filter as filtering
from rela.filtering.filter import (
    PROBLEMS,
    best_first,
    chosen,
    filter_corpus,
    rank_values,
    score_block,
    score_corpus,
)
from rela.filtering.pair_scores import score_pairs
from rela.filtering.score_store import RECORD
from rela.report.filter_page import write_filter_page
from tests.filtering.corpora import ATTACK, rows, write_lines
from tests.tiny_models import tiny_folder, tiny_translator, toy_pairs


def test_scores_are_those_of_the_pairs_in_order(corpus, tmp_path):
    pairs, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=7)
    filter_corpus(store, source, target, tmp_path / "s.tsv")
    found = rows(tmp_path / "s.tsv")
    assert [int(row["line"]) for row in found] == list(range(1, 42))
    for row, score in zip(found, score_pairs(tiny_translator(), pairs), strict=True):
        assert (float(row["null_rate"]), float(row["log_prob"])) == (score.null_rate, score.log_prob)
    by_rank = sorted(found, key=lambda row: int(row["rank"]))
    assert [int(row["rank"]) for row in by_rank] == list(range(1, 42))
    rates = [float(row["null_rate"]) for row in by_rank]
    assert rates == sorted(rates)
    assert len(set(rates)) > 5


def test_block_size_and_processes_change_nothing(corpus, tmp_path):
    _, source, target = corpus
    one = score_corpus(tiny_translator(), source, target, tmp_path / "one", block=41).read()
    for rank in (2, 0, 1):  # in any order, as processes finish
        store = score_corpus(tiny_translator(), source, target, tmp_path / "three", block=4, rank=rank, world=3)
    assert store.read().tobytes() == one.tobytes()
    assert len(list((tmp_path / "three").glob("part-*.scores"))) == 3


def test_another_number_of_processes_goes_on(corpus, tmp_path):
    _, source, target = corpus
    whole = score_corpus(tiny_translator(), source, target, tmp_path / "whole", block=4).read()
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4, rank=1, world=3)
    with pytest.raises(ValueError, match="lacks block 0"):
        store.read()
    done = len(store.finished())
    scored = []
    original = filtering.score_block
    filtering.score_block = lambda *arguments: scored.append(1) or original(*arguments)
    try:
        store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4)
    finally:
        filtering.score_block = original
    assert len(scored) == 11 - done, "finished blocks are not scored again"
    assert store.read().tobytes() == whole.tobytes()


def test_killed_at_any_moment_and_continued(corpus, tmp_path):
    """SIGKILL again and again, while another process would have scored the same corpus in one go."""
    _, source, target = corpus
    tiny_folder(tmp_path / "model")
    code = (
        "import sys, time; from pathlib import Path\n"
        "from rela.analysis import filter as f; from rela.decoding.translate import Translator\n"
        "real = f.score_block\n"
        "def slow(*a):\n    print('block', flush=True); time.sleep(0.05); return real(*a)\n"
        "f.score_block = slow\n"
        "m = Translator.load(sys.argv[1], 'cpu')\n"
        "f.score_corpus(m, sys.argv[2], sys.argv[3], Path(sys.argv[4]), block=3)\n"
        "print('finished', flush=True)\n"
    )
    command = [sys.executable, "-c", code, *map(str, (tmp_path / "model", source, target, tmp_path / "parts"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills = 0
    for patience in (2, 5, None):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            for count, line in enumerate(process.stdout):
                if line.strip() == "finished":
                    break
                if patience is not None and count == patience:
                    time.sleep(0.01 * patience)
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
    assert kills == 2
    resumed = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=3).read()
    whole = score_corpus(tiny_translator(), source, target, tmp_path / "whole", block=41).read()
    assert resumed.tobytes() == whole.tobytes()


def test_bad_lines_are_named_and_never_kept(tmp_path):
    good = toy_pairs(3)
    long = "a " * 200
    sources = [good[0][0], "", b"\xff\xfe\n", good[1][0], "x\0y", long, good[2][0]]
    targets = [good[0][1], good[1][1], "x", good[1][1], "x", "x", good[2][1]]
    source, target = write_lines(tmp_path / "s", sources), write_lines(tmp_path / "t", targets)
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", keep=1.0)
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
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", keep=0.5, text=True)
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


@pytest.mark.parametrize("by", ["null-rate", "log-prob", "both"])
def test_the_threshold_of_a_kept_share_keeps_at_least_that_share(corpus, tmp_path, by):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    first = filter_corpus(store, source, target, tmp_path / "a.tsv", by=by, keep=0.3)
    second = filter_corpus(store, source, target, tmp_path / "b.tsv", by=by, threshold=first.threshold)
    one, two = ({row["line"] for row in rows(tmp_path / name) if row["kept"] == "1"} for name in ("a.tsv", "b.tsv"))
    assert one <= two
    assert second.threshold == first.threshold


def test_ranked_is_best_first(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    filter_corpus(store, source, target, tmp_path / "s.tsv", by="log-prob", ranked=True)
    values = [float(row["log_prob"]) for row in rows(tmp_path / "s.tsv")]
    assert values == sorted(values, reverse=True)
    with pytest.raises(ValueError, match="not ranked"):
        filter_corpus(store, source, target, tmp_path / "s.tsv", ranked=True, text=True)


RATES = arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.0, 0.25, 0.5, 0.75]))


@given(RATES, st.data())
def test_orders_by_definition(null_rates, data):
    """Every pair is ranked before each that is worse, and of equals the earlier comes first."""
    scores = np.zeros(len(null_rates), RECORD)
    scores["null_rate"] = null_rates
    scores["log_prob"] = data.draw(arrays(np.float64, len(null_rates), elements=st.sampled_from([-3.0, -2.0, -1.0])))
    scores["problem"] = data.draw(arrays(np.uint8, len(null_rates), elements=st.sampled_from([0, 0, 0, 1])))
    good = [i for i in range(len(scores)) if scores["problem"][i] == 0]
    assert best_first(rank_values(scores, "null-rate")).tolist() == sorted(good, key=lambda i: (null_rates[i], i))
    assert best_first(rank_values(scores, "log-prob")).tolist() == sorted(
        good, key=lambda i: (-scores["log_prob"][i], i)
    )

    def place(i, values):  # mean place from the worst, in pairs, counting itself half
        return sum((values[j] < values[i]) + 0.5 * (values[j] == values[i]) for j in good) + 0.5

    both = rank_values(scores, "both")
    for i in good:
        expected = (place(i, -null_rates) + place(i, scores["log_prob"])) / (2 * len(good))
        assert both[i] == pytest.approx(expected)
    keep = data.draw(st.floats(0, 1))
    order = best_first(both)
    kept = chosen(both, order, "both", keep, None)
    assert np.flatnonzero(kept).tolist() == sorted(order[: int(keep * len(good) + 0.5)].tolist())


def test_what_makes_no_sense_is_refused(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    for options, message in [
        ({"by": "length"}, "by is 'length'"),
        ({"keep": 1.5}, "share from 0 to 1"),
        ({"keep": 0.5, "threshold": 0.5}, "wanted one of them"),
        ({"threshold": float("nan")}, "not a number"),
    ]:
        with pytest.raises(ValueError, match=message):
            filter_corpus(store, source, target, tmp_path / "s.tsv", **options)
    with pytest.raises(ValueError, match="standard input"):
        score_corpus(tiny_translator(), "-", "-", tmp_path / "other")
    write_lines(tmp_path / "short", ["x"])
    with pytest.raises(ValueError, match="unequal line counts"):
        score_corpus(tiny_translator(), source, tmp_path / "short", tmp_path / "other")


def test_an_empty_corpus_is_an_empty_table(tmp_path):
    source, target = write_lines(tmp_path / "s", []), write_lines(tmp_path / "t", [])
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts")
    summary = filter_corpus(store, source, target, tmp_path / "s.tsv", keep=0.5)
    assert (summary.pairs, summary.kept) == (0, 0)
    write_filter_page(store, source, target, tmp_path / "p.html", summary)
    assert rows(tmp_path / "s.tsv") == []


def test_softmax_has_no_null_rate_to_rank_by():
    raw = [(source.encode(), target.encode()) for source, target in toy_pairs(5)]
    assert not score_block(tiny_translator("softmax"), raw)["null_rate"].any()


def test_who_ranks_by_a_null_rate_that_is_not_there_is_told(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator("softmax"), source, target, tmp_path / "parts")
    with pytest.warns(UserWarning, match="no pair has null attention"):
        filter_corpus(store, source, target, tmp_path / "s.tsv", keep=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filter_corpus(store, source, target, tmp_path / "s.tsv", by="log-prob", keep=0.5)
