"""Scores of a corpus are the same however many processes score it, and however often they are stopped."""

import os
import signal
import time

import pytest

from rela.decoding.translate import Translator
from rela.filtering import score_corpus as scoring
from rela.filtering.score_corpus import score_block, score_corpus
from tests.filtering.corpora import write_lines
from tests.forking import Forked
from tests.tiny_models import tiny_folder, tiny_translator, toy_pairs


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
    original = scoring.score_block
    scoring.score_block = lambda *arguments: scored.append(1) or original(*arguments)
    try:
        store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4)
    finally:
        scoring.score_block = original
    assert len(scored) == 11 - done, "finished blocks are not scored again"
    assert store.read().tobytes() == whole.tobytes()


def test_killed_at_any_moment_and_continued(corpus, tmp_path):
    """SIGKILL again and again, while another process would have scored the same corpus in one go."""
    _, source, target = corpus
    tiny_folder(tmp_path / "model")

    def score_slowly() -> None:
        real = scoring.score_block

        def slow(*arguments):
            print("block", flush=True)
            time.sleep(0.05)
            return real(*arguments)

        scoring.score_block = slow
        score_corpus(Translator.load(tmp_path / "model", "cpu"), source, target, tmp_path / "parts", block=3)
        print("finished", flush=True)

    kills = 0
    for patience in (2, 5, None):
        reader, writer = os.pipe()
        process = Forked(score_slowly, stdout=writer)
        os.close(writer)
        with open(reader) as output:
            for count, line in enumerate(output):
                if line.strip() == "finished":
                    break
                if patience is not None and count == patience:
                    time.sleep(0.01 * patience)
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
        process.communicate()
    assert kills == 2
    resumed = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=3).read()
    whole = score_corpus(tiny_translator(), source, target, tmp_path / "whole", block=41).read()
    assert resumed.tobytes() == whole.tobytes()


def test_softmax_has_no_null_rate_to_rank_by():
    raw = [(source.encode(), target.encode()) for source, target in toy_pairs(5)]
    assert not score_block(tiny_translator("softmax"), raw)["null_rate"].any()


def test_what_cannot_be_scored_is_refused(corpus, tmp_path):
    _, source, _ = corpus
    with pytest.raises(ValueError, match="standard input"):
        score_corpus(tiny_translator(), "-", "-", tmp_path / "other")
    write_lines(tmp_path / "short", ["x"])
    with pytest.raises(ValueError, match="unequal line counts"):
        score_corpus(tiny_translator(), source, tmp_path / "short", tmp_path / "other")
