"""Preparation: what is written, what is dropped, and what a second run does."""

import io
import lzma
from collections import Counter

import numpy as np
import pytest

from rela.config import CorpusConfig
from rela.data import prepare as preparation
from rela.data.corpus import CorpusError
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords
from tests.data.parallel_text import make_pairs, write_pairs


def texts(corpus, subwords):
    return [tuple(subwords.decode(side.tolist()) for side in corpus.pair(i)) for i in range(len(corpus))]


def test_every_pair_is_there_once_whatever_the_shards(config, tmp_path):
    valid = write_pairs(tmp_path, "valid", make_pairs(50, seed=1))
    report = prepare(config(valid=valid))
    subwords = Subwords.load(tmp_path / "prepared" / "subwords.model")
    train = PreparedCorpus.open(tmp_path / "prepared", "train")
    assert report.vocabulary_size == subwords.size == train.vocabulary_size == 60
    assert report.splits["train"].shards == 5
    assert len(train) == report.splits["train"].pairs == 300
    assert Counter(texts(train, subwords)) == Counter(make_pairs(300))
    lengths = [[len(side) for side in train.pair(i)] for i in range(300)]
    assert (train.source_tokens, train.target_tokens) == tuple(np.sum(lengths, axis=0))
    assert (train.longest_source, train.longest_target) == tuple(np.max(lengths, axis=0))
    # pairs are distributed at random; validation keeps the order of its files
    assert texts(train, subwords) != make_pairs(300)
    assert texts(PreparedCorpus.open(tmp_path / "prepared", "valid"), subwords) == make_pairs(50, seed=1)


def test_the_same_input_gives_the_same_bytes_and_another_seed_another_order(config, tmp_path):
    def contents(name, **changes):
        prepare(config(directory=str(tmp_path / name), **changes), threads=1 + (name == "b"))
        return {path.name: path.read_bytes() for path in (tmp_path / name / "ids").iterdir()}

    first = contents("a")
    assert contents("b") == first
    assert contents("c", seed=2) != first


def test_compressed_text_gives_the_same_ids(config, tmp_path):
    prepare(config())
    for suffix in ("en", "de"):
        raw = (tmp_path / f"train.{suffix}").read_bytes()
        (tmp_path / f"packed.{suffix}.xz").write_bytes(lzma.compress(raw))
    other = tmp_path / "other"
    prepare(config(train=(CorpusConfig("packed.en.xz", "packed.de.xz"),), directory=str(other)))
    for path in (tmp_path / "prepared" / "ids").iterdir():
        assert path.read_bytes() == (other / "ids" / path.name).read_bytes()


@pytest.mark.parametrize("both", [False, True])
def test_the_standard_input_can_be_one_side_or_tab_separated_pairs(config, tmp_path, monkeypatch, both):
    def give():
        rows = [f"{source}\t{target}" if both else source for source, target in make_pairs(300)]
        data = "".join(row + "\n" for row in rows).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    settings = config(train=(CorpusConfig("-", "-" if both else str(tmp_path / "train.de")),))
    give()
    assert prepare(settings).splits["train"].pairs == 300
    give()
    assert prepare(settings).reused
    corpus = PreparedCorpus.open(tmp_path / "prepared", "train")
    subwords = Subwords.load(tmp_path / "prepared" / "subwords.model")
    assert Counter(texts(corpus, subwords)) == Counter(make_pairs(300))
    assert not list(tmp_path.rglob("*.zst"))


def test_what_is_dropped_is_counted_by_reason(config, tmp_path):
    pairs = [
        *make_pairs(200),
        ("", "leer"),
        ("the cat " * 20_000, "die Katze"),
        ("the cat " * 12, "die"),
        ("a dog", "\t"),
    ]
    corpus = write_pairs(tmp_path, "noisy", pairs)
    with (tmp_path / "noisy.en").open("ab") as source, (tmp_path / "noisy.de").open("ab") as target:
        source.write(b"latin \xe9\n")
        target.write(b"gut\n")
    report = prepare(config(train=(corpus,), max_tokens=50, max_ratio=4.0)).splits["train"]
    assert report.dropped == {
        "empty": 2,
        "not UTF-8": 1,
        "longer than max_tokens": 1,
        "length ratio over max_ratio": 1,
    }
    assert report.read == 205
    assert report.pairs == 200


def test_raise_ends_the_run_with_file_and_line_and_leaves_nothing(config, tmp_path):
    corpus = write_pairs(tmp_path, "noisy", [*make_pairs(20), ("the cat", "")])
    with pytest.raises(CorpusError, match=r"noisy\.de, line 21: empty"):
        prepare(config(train=(corpus,), on_bad_line="raise"))
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [".lock"]


def test_unequal_missing_and_empty_files(config, tmp_path):
    corpus = write_pairs(tmp_path, "short", make_pairs(20))
    (tmp_path / "short.de").write_text("eins\n")
    with pytest.raises(CorpusError, match=r"short\.en has 20, .*short\.de has 1"):
        prepare(config(train=(corpus,)))
    with pytest.raises(CorpusError, match=r"absent\.en: No such file"):
        prepare(config(train=(CorpusConfig("absent.en", "absent.de"),)))
    with pytest.raises(CorpusError, match=r"empty\.de hold no usable pair: no lines"):
        prepare(config(train=(write_pairs(tmp_path, "empty", []),)))
    with pytest.raises(CorpusError, match="hold no usable pair: 3 empty"):
        prepare(config(train=(write_pairs(tmp_path, "blank", [("", "x")] * 3),)))
    with pytest.raises(CorpusError, match="no pair of the train split is left: 300 longer than max_tokens"):
        prepare(config(max_tokens=1))
    with pytest.raises(ValueError, match=r"data\.train is empty"):
        prepare(config(train=()))
    with pytest.raises(ValueError, match="600 lines are too few for a vocabulary of 5000"):
        prepare(config(vocabulary_size=5000))


def test_a_bad_validation_file_is_found_before_training_text_is_encoded(config, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "train_subwords", lambda *a, **k: pytest.fail("learnt a vocabulary first"))
    with pytest.raises(CorpusError, match=r"absent\.en: No such file"):
        prepare(config(valid=CorpusConfig("absent.en", "absent.de")))


def test_a_finished_directory_is_reused_and_an_interrupted_one_redone(config, tmp_path, monkeypatch):
    prepared = tmp_path / "prepared"
    first = prepare(config())
    stamp = (prepared / "meta.json").stat().st_mtime_ns
    again = prepare(config())
    assert again.reused
    assert not first.reused
    assert again.splits == first.splits
    assert (prepared / "meta.json").stat().st_mtime_ns == stamp

    def interrupt(stage, done, total):
        if stage == "encoding train":
            raise KeyboardInterrupt

    whole = {path.name: path.read_bytes() for path in (prepared / "ids").iterdir()}
    with pytest.raises(KeyboardInterrupt):
        prepare(config(seed=5), interrupt, force=True)
    # what was finished before is still whole
    assert {path.name: path.read_bytes() for path in (prepared / "ids").iterdir()} == whole
    assert prepare(config()).reused
    # killed while the files were put in place: no meta.json, so everything is made again
    (prepared / "meta.json").unlink()
    (prepared / ".partial").mkdir()
    (prepared / ".partial" / "rubbish").write_text("")
    assert not prepare(config()).reused
    assert {path.name: path.read_bytes() for path in (prepared / "ids").iterdir()} == whole
    assert not (prepared / ".partial").exists()


def test_other_settings_or_other_text_are_refused_unless_forced(config, tmp_path):
    prepare(config())
    with pytest.raises(ValueError, match=r"prepared was prepared otherwise: max_tokens was 256, now 9; .* force$"):
        prepare(config(max_tokens=9))
    with pytest.raises(ValueError, match=r"the weight of train\.en was 1\.0, now 2\.0"):
        prepare(config(train=(CorpusConfig("train.en", "train.de", weight=2.0),)))
    assert prepare(config(max_tokens=9), force=True).splits["train"].longest_target <= 9
    settings = config(max_tokens=9)
    write_pairs(tmp_path, "train", make_pairs(300)[::-1])  # as many bytes as before
    with pytest.raises(ValueError, match=r"train\.\w+ has changed"):
        prepare(settings)


def test_a_foreign_file_in_the_directory_stays(config, tmp_path):
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "notes.txt").write_text("mine")
    prepare(config())
    prepare(config(seed=2), force=True)
    assert (tmp_path / "prepared" / "notes.txt").read_text() == "mine"


def test_a_second_process_is_kept_out(config, tmp_path):
    (tmp_path / "prepared").mkdir()
    with preparation.locked(tmp_path / "prepared"), pytest.raises(ValueError, match="by another process"):
        prepare(config())


def test_a_given_vocabulary_is_used(config, tmp_path):
    prepare(config())
    subwords = Subwords.load(tmp_path / "prepared" / "subwords.model")
    other = tmp_path / "other"
    train = (write_pairs(tmp_path, "new", make_pairs(40, seed=3)),)
    prepare(config(train=train, directory=str(other)), subwords=subwords)
    assert Subwords.load(other / "subwords.model").sha256 == subwords.sha256
    assert prepare(config(train=train, directory=str(other), subwords="prepared/subwords.model")).reused
    with pytest.raises(ValueError, match="vocabulary_size is 61, but the given vocabulary has 60"):
        prepare(config(train=train, directory=str(other), vocabulary_size=61), subwords=subwords)


def test_progress_counts_up_to_its_totals(config):
    calls = []
    prepare(config(), lambda *call: calls.append(call))
    assert list(dict.fromkeys(stage for stage, _, _ in calls)) == [
        "counting pairs",
        "learning the vocabulary",
        "encoding train",
    ]
    last = {stage: (done, total) for stage, done, total in calls}
    assert set(last.values()) == {(300, 300)}


def test_the_report_reads_well(config):
    text = prepare(config(max_tokens=9)).summary()
    assert "vocabulary of 60" in text
    assert "of 300 pairs" in text
    assert "longer than max_tokens" in text
