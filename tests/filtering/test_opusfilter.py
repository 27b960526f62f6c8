"""The OpusFilter classes have the methods OpusFilter calls, with or without it installed."""

import subprocess
import sys

import pytest

from rela.filtering.opusfilter import CHUNK, LogProbFilter, NullRateFilter
from rela.filtering.pair_scores import score_pairs
from tests.tiny_models import tiny_folder, tiny_translator, toy_pairs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("opus") / "model"
    tiny_folder(path)
    return path


def test_scores_are_null_rates_in_order(folder):
    pairs = [*toy_pairs(6), ("", "leer"), ("zu lang " * 2000, "x")]
    scores = list(NullRateFilter(model=str(folder)).score(iter(pairs)))
    assert scores == [*(score.null_rate for score in score_pairs(tiny_translator(), pairs[:6])), 1.0, 1.0]
    log_probs = list(LogProbFilter(model=str(folder)).score(pairs))
    assert log_probs[:6] == [score.log_prob for score in score_pairs(tiny_translator(), pairs[:6])]
    assert log_probs[6:] == [float("-inf")] * 2


@pytest.mark.parametrize("kind", [NullRateFilter, LogProbFilter])
def test_decisions_filter_and_filterfalse_agree(folder, kind):
    pairs = toy_pairs(9)
    scores = sorted(kind(model=str(folder)).score(pairs))
    opus_filter = kind(model=str(folder), threshold=scores[4])
    decisions = list(opus_filter.decisions(pairs))
    assert True in decisions
    assert False in decisions
    assert list(opus_filter.filter(pairs)) == [pair for pair, yes in zip(pairs, decisions, strict=True) if yes]
    assert list(opus_filter.filterfalse(pairs)) == [pair for pair, yes in zip(pairs, decisions, strict=True) if not yes]
    assert opus_filter.accept(scores[4])


def test_the_thresholds_that_accept_and_reject_everything(folder):
    for kind, worst, best in ((NullRateFilter, 1.0, 0.0), (LogProbFilter, float("-inf"), 0.0)):
        opus_filter = kind(model=str(folder))
        assert opus_filter.score_direction in ("clean_low", "clean_high")
        opus_filter.threshold = opus_filter.accept_threshold
        assert opus_filter.accept(worst)
        opus_filter.threshold = opus_filter.reject_threshold
        assert not opus_filter.accept(best)


def test_pairs_are_read_as_they_are_needed(folder):
    taken = []
    endless = (taken.append(1) or pair for _ in range(10**9) for pair in toy_pairs(2))
    stream = NullRateFilter(model=str(folder)).score(endless)
    next(stream)
    assert len(taken) == CHUNK


def test_wrong_use_is_said(folder):
    with pytest.raises(ValueError, match="pairs of sentences; found 3"):
        next(NullRateFilter(model=str(folder)).score([("a", "b", "c")]))
    with pytest.raises(ValueError, match="not a model folder"):
        NullRateFilter(model="nowhere")


def test_it_is_a_filter_of_opusfilter_where_that_is_installed(folder, tmp_path):
    """A stand-in package with the abstract base class: what it demands, and its constructor's words."""
    package = tmp_path / "opusfilter"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import abc\n"
        "class FilterABC(metaclass=abc.ABCMeta):\n"
        "    def __init__(self, name=None, workdir='', **kwargs):\n"
        "        self.name, self.workdir = name, workdir\n"
        "    @abc.abstractmethod\n    def score(self, pairs): ...\n"
        "    @abc.abstractmethod\n    def accept(self, score): ...\n"
        "    @property\n    @abc.abstractmethod\n    def score_direction(self): ...\n"
        "    def decisions(self, pairs):\n        return (self.accept(score) for score in self.score(pairs))\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from opusfilter import FilterABC; from rela.filtering.opusfilter import NullRateFilter\n"
        "f = NullRateFilter(name='n', workdir=sys.argv[2], model='model', threshold=1.0)\n"
        "assert isinstance(f, FilterABC); print(list(f.decisions([('a b', 'c d')])))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(folder.parent)], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[True]", run.stderr
