"""Preparation: what is written, what is dropped, and what a second run does."""

import dataclasses
import io
import lzma
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rela.config import CorpusConfig, DataConfig, from_dict, to_dict
from rela.data import prepare as preparation
from rela.data.corpus import CorpusError
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords
from tests.data.parallel_text import make_pairs, write_pairs
from tests.killing import killer


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
    assert list((tmp_path / "prepared").iterdir()) == []


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
    with pytest.raises(ValueError, match=r"prepared was prepared otherwise: max_tokens was 256, now 9; .* --force, or"):
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


def test_foreign_ids_and_vocabularies_stay(config, tmp_path):
    """A folder named ids with other people's files in it, and a vocabulary that no preparation wrote."""
    prepared = tmp_path / "prepared"
    (prepared / "ids").mkdir(parents=True)
    (prepared / "ids" / "passport.txt").write_text("mine")
    prepare(config())
    prepare(config(seed=2), force=True)
    prepare(config(seed=3), force=True)
    assert (prepared / "ids" / "passport.txt").read_text() == "mine"
    names = {path.name for path in prepared.iterdir()}
    assert len(names) == 4
    assert names > {"ids", "meta.json", "subwords.model"}
    other = tmp_path / "other"
    other.mkdir()
    (other / "subwords.model").write_text("mine")
    with pytest.raises(ValueError, match=r"subwords\.model would be replaced, and `rela prepare` did not write it"):
        prepare(config(directory=str(other)))
    assert (other / "subwords.model").read_text() == "mine"


def test_a_run_keeps_the_ids_it_trains_on(config, tmp_path):
    """Another preparation takes their place; they go when nobody uses them any more."""
    pytest.importorskip("fcntl")
    prepared = tmp_path / "prepared"
    prepare(config())
    training = PreparedCorpus.open(prepared, "train")
    before = [tuple(side.tolist() for side in training.pair(i)) for i in range(300)]
    prepare(config(seed=2), force=True)
    assert [tuple(side.tolist() for side in training.pair(i)) for i in range(300)] == before
    assert PreparedCorpus.open(prepared, "train").fingerprint != training.fingerprint
    assert {path.name for path in prepared.iterdir()} == {"ids", "ids-2", "meta.json", "subwords.model"}
    del training
    assert prepare(config(seed=2)).reused
    assert {path.name for path in prepared.iterdir()} == {"ids-2", "meta.json", "subwords.model"}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_text_that_cannot_be_read_three_times_is_refused(config, tmp_path, kind):
    path = tmp_path / "train.fifo"
    if kind == "pipe":
        os.mkfifo(path)
    path = {"pipe": path, "device": "/dev/zero", "folder": tmp_path}[kind]
    with pytest.raises(CorpusError, match=r'wanted a file, or "-" for the standard input'):
        prepare(config(train=(CorpusConfig(str(path), "train.de"),)))


def prepare_by_force(settings):
    """Prepare in the process of a Killer."""
    prepare(from_dict(DataConfig, settings, "settings"), force=True, threads=1)


def kill_forced_preparations(settings, tmp_path, first):
    """Kill `prepare --force` at each file-system event from `first` on; after each, one preparation is whole."""
    prepared, old = Path(settings.directory), tmp_path / "old"
    prepare(settings, threads=1)
    shutil.copy(prepared / "subwords.model", tmp_path / "given.model")  # not to learn one for each kill
    settings = dataclasses.replace(settings, subwords="given.model")
    fingerprints = {}
    for seed in (2, 1):
        prepare(dataclasses.replace(settings, seed=seed), force=True, threads=1)
        fingerprints[PreparedCorpus.open(prepared, "train").fingerprint] = seed
    shutil.copytree(prepared, old)
    found = []
    with killer(tmp_path, __name__) as process:
        wanted = to_dict(dataclasses.replace(settings, seed=2))
        total = process.call(f"{__name__}:prepare_by_force", wanted).events
        for event in range(first if first > 0 else total + first, total + 1):
            shutil.rmtree(prepared)
            shutil.copytree(old, prepared)
            ended = process.call(f"{__name__}:prepare_by_force", wanted, event=event)
            assert ended.killed, ended.errors
            corpus = PreparedCorpus.open(prepared, "train")
            assert len([corpus.pair(i) for i in range(300)]) == 300, "checksums are right"
            found.append(fingerprints[corpus.fingerprint])
            del corpus  # which keeps its ids from being removed
            assert prepare(dataclasses.replace(settings, seed=found[-1])).reused
            names = {path.name for path in prepared.iterdir()}
            assert len(names) == 3, names
            subwords = [Subwords.load(path).sha256 for path in prepared.rglob("subwords.model")]
            assert len(subwords) == 2 == subwords.count(subwords[0])
    assert found == sorted(found), "old until the rename, new from it on"
    return found


def test_killed_while_it_puts_files_in_place_the_old_or_the_new_preparation_is_whole(config, tmp_path):
    found = kill_forced_preparations(config(shard_pairs=200), tmp_path, first=-20)
    assert found.count(1) > 3
    assert found.count(2) > 3


@pytest.mark.campaign
def test_wherever_it_is_killed_the_old_or_the_new_preparation_is_whole(config, tmp_path):
    found = kill_forced_preparations(config(shard_pairs=200), tmp_path, first=1)
    assert len(found) > 40
    print(f"prepare --force: {len(found)} kills, each left a whole preparation")


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
        "computing checksums",
    ]
    last = {stage: (done, total) for stage, done, total in calls}
    done, total = last.pop("computing checksums")
    assert done == total > 300
    assert set(last.values()) == {(300, 300)}


def test_the_report_reads_well(config):
    text = prepare(config(max_tokens=9)).summary()
    assert "vocabulary of 60" in text
    assert "of 300 pairs" in text
    assert "longer than max_tokens" in text
