"""The combined score of a corpus is that of its pairs checked one by one."""

import numpy as np
import pytest

from rela.filtering.calibration import calibrate
from rela.filtering.check import Checker
from rela.filtering.combined_scorer import CombinedScorer
from rela.filtering.detector import save_detectors
from rela.filtering.ranking import Criterion, best_first, chosen, rank_values
from rela.filtering.score_corpus import PROBLEMS, score_corpus
from tests.filtering.corpora import write_lines
from tests.tiny_models import BACK, tiny_folder, toy_pairs


def test_a_corpus_is_scored_and_ranked_by_the_detector(tmp_path):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    with pytest.raises(ValueError, match="run rela check --calibrate"):
        CombinedScorer(there, back)
    save_detectors(tmp_path / "there", calibrate(there, back, toy_pairs(24, seed=11)))
    pairs = [*toy_pairs(9), ("only one side", ""), *toy_pairs(4, seed=6)]
    source = write_lines(tmp_path / "c.en", [one for one, _ in pairs])
    target = write_lines(tmp_path / "c.de", [other for _, other in pairs])
    scorer = CombinedScorer(there, back)
    scores = score_corpus(scorer, source, target, tmp_path / "parts", block=5).read()
    checks = list(Checker(there, back).check(pairs))
    for row, check in zip(scores, checks, strict=True):
        if check.score is None:
            assert PROBLEMS[row["problem"]] == "empty"
            assert np.isnan(row["score"])
        else:
            assert row["score"] == pytest.approx(check.score, abs=1e-6)
            assert row["null_rate"] == pytest.approx(check.null_rate, abs=1e-9)
    goodness = rank_values(scores, "score")
    order = best_first(goodness)
    assert len(order) == len(pairs) - 1
    assert (np.diff(scores["score"][order]) >= 0).all(), "low is good, and first"
    limit = float(np.median(scores["score"][order]))
    kept = chosen(goodness, order, Criterion("score", threshold=limit))
    assert (kept == (np.nan_to_num(scores["score"], nan=9.0) <= limit)).all()
    with pytest.raises(ValueError, match="detector, reverse changed"):
        score_corpus(there, source, target, tmp_path / "parts", block=5)
