"""Scores on disk: a torn tail is cut off, damage and foreign scores are noticed, one writer a part."""

import numpy as np
import pytest

from rela.filtering.score_corpus import score_corpus
from rela.filtering.score_store import RECORD, ScoreStore
from tests.filtering.corpora import write_lines
from tests.tiny_models import tiny_translator


@pytest.mark.parametrize("cut", ["scores", "journal", "both"])
def test_a_torn_tail_is_cut_off(corpus, tmp_path, cut):
    """What a dying process may leave: half a block, half a journal line."""
    _, source, target = corpus
    whole = score_corpus(tiny_translator(), source, target, tmp_path / "whole", block=4).read()
    parts = tmp_path / "parts"
    score_corpus(tiny_translator(), source, target, parts, block=4, rank=0, world=2)
    if cut in ("scores", "both"):
        with open(parts / "part-0000.scores", "ab") as file:
            file.write(b"\x07" * 30)
    if cut in ("journal", "both"):
        with open(parts / "part-0000.journal", "ab") as file:
            file.write(b'{"block": 1, "offs')
    assert score_corpus(tiny_translator(), source, target, parts, block=4).read().tobytes() == whole.tobytes()


def test_damaged_scores_are_noticed(corpus, tmp_path):
    _, source, target = corpus
    store = score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4)
    path = tmp_path / "parts" / "part-0000.scores"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        store.read()


def test_scores_of_another_job_are_not_mixed_in(corpus, tmp_path):
    _, source, target = corpus
    score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4)
    with pytest.raises(ValueError, match=r"another job \(model changed\)"):
        score_corpus(tiny_translator("rela-g", seed=2), source, target, tmp_path / "parts", block=4)
    write_lines(target, ["x"] * 41)
    with pytest.raises(ValueError, match=r"another job \(target changed\)"):
        score_corpus(tiny_translator(), source, target, tmp_path / "parts", block=4)


def test_two_writers_of_one_part_are_refused(tmp_path):
    store = ScoreStore(tmp_path / "parts", {"a": 1})
    with store.writer(0), pytest.raises(ValueError, match="another process is writing part-0000"), store.writer(0):
        pass


@pytest.mark.parametrize("name", ["job.json", "part-0000.journal"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "3", '{"block": 0}', '{"block": 0, "offset": -24, "pairs": 1, "checksum": 1}']
)
def test_a_damaged_record_of_the_work_is_one_line(tmp_path, name, text):
    store = ScoreStore(tmp_path / "parts", {"a": 1})
    with store.writer(0) as writer:
        writer.add(0, np.zeros(3, RECORD))
    (tmp_path / "parts" / name).write_text(f"{text}\n")
    with pytest.raises(ValueError, match=r"damaged; remove|another job"):
        ScoreStore(tmp_path / "parts", {"a": 1}).read()
