"""Shards of ids on disk: what is wrong with them is named, and wide ids are kept."""

import json

import numpy as np
import pytest

from rela.config import CorpusConfig
from rela.data.corpus import CorpusError
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from tests.data.parallel_text import make_pairs, write_pairs


def test_opening_names_what_is_wrong(config, tmp_path):
    prepared = tmp_path / "prepared"
    with pytest.raises(CorpusError, match="holds no prepared corpus"):
        PreparedCorpus.open(prepared, "train")
    prepare(config())
    with pytest.raises(CorpusError, match="has no split 'valid'; it has train; rela prepare --force adds new text"):
        PreparedCorpus.open(prepared, "valid")
    corpus = PreparedCorpus.open(prepared, "train")
    with pytest.raises(IndexError, match="pair 300 of 300"):
        corpus.pair(300)

    ids = prepared / "ids" / "train-00001.ids"
    whole = ids.read_bytes()
    ids.write_bytes(whole[:-2])
    with pytest.raises(CorpusError, match=r"train-00001\.ids is damaged: \d+ bytes, wanted"):
        PreparedCorpus.open(prepared, "train")
    ids.unlink()
    with pytest.raises(CorpusError, match=r"train-00001\.ids is damaged: none bytes"):
        PreparedCorpus.open(prepared, "train")
    ids.write_bytes(whole)

    damaged = np.frombuffer(whole, "<u2").copy()
    damaged[3] ^= 1
    ids.write_bytes(damaged.tobytes())
    corpus = PreparedCorpus.open(prepared, "train")
    with pytest.raises(CorpusError, match=r"train-00001\.ids is not the file that was prepared"):
        [corpus.pair(i) for i in range(300)]
    ids.write_bytes(whole)

    model = prepared / "ids" / "subwords.model"
    model.write_bytes(model.read_bytes() + b"\0")
    with pytest.raises(CorpusError, match=r"subwords\.model is not the vocabulary"):
        PreparedCorpus.open(prepared, "train")

    meta = prepared / "meta.json"
    facts = json.loads(meta.read_text())
    meta.write_text(json.dumps(facts | {"format": 99}))
    with pytest.raises(CorpusError, match=r"meta\.json is of another format"):
        PreparedCorpus.open(prepared, "train")
    meta.write_text(meta.read_text()[:20])
    with pytest.raises(CorpusError, match=r"meta\.json is damaged"):
        prepare(config())
    assert not prepare(config(), force=True).reused
    assert len(PreparedCorpus.open(prepared, "train")) == 300


def as_older_versions_wrote_it(prepared):
    """The same directory without checksums, its vocabulary beside the ids."""
    meta = json.loads((prepared / "meta.json").read_text())
    del meta["ids"]
    for split in meta["splits"].values():
        del split["checksums"]
    (prepared / "meta.json").write_text(json.dumps(meta))
    (prepared / "ids" / "subwords.model").unlink()


def test_directories_of_older_versions_are_opened(config, tmp_path):
    prepared = tmp_path / "prepared"
    prepare(config())
    new = PreparedCorpus.open(prepared, "train")
    as_older_versions_wrote_it(prepared)
    old = PreparedCorpus.open(prepared, "train")
    assert (old.fingerprint, old.vocabulary) == (None, prepared / "subwords.model")
    assert new.fingerprint is not None
    assert [side.tolist() for side in old.pair(7)] == [side.tolist() for side in new.pair(7)]
    assert prepare(config()).reused
    assert {path.name for path in prepared.iterdir()} == {"ids", "meta.json", "subwords.model"}
    assert not prepare(config(seed=2), force=True).reused


def test_the_fingerprint_tells_order_pairing_and_weights(config, tmp_path):
    pairs = make_pairs(300)
    shuffled = list(zip((source for source, _ in pairs), (target for _, target in pairs[::-1]), strict=True))
    heavy = (CorpusConfig("train.en", "train.de", weight=2.0),)

    def fingerprint(pairs, **changes):
        settings = config(**changes)
        write_pairs(tmp_path, "train", pairs)
        prepare(settings, force=True)
        return PreparedCorpus.open(tmp_path / "prepared", "train").fingerprint

    found = [fingerprint(pairs), fingerprint(pairs[::-1]), fingerprint(shuffled)]
    found += [fingerprint(pairs, seed=2), fingerprint(pairs, train=heavy)]
    assert len(set(found)) == 5
    assert fingerprint(pairs) == found[0]


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": 3},
        {"vocabulary": {"size": "60", "sha256": ""}},
        {"splits": []},
        {"splits": {"train": {}}},
        {"inputs": {}},
        {"inputs": [{"split": "train"}]},
        {"settings": None},
        {"ids": "../ids"},
        {"ids": 7},
    ],
)
def test_a_manifest_of_wrong_types_is_one_line(config, tmp_path, change):
    prepare(config())
    path = tmp_path / "prepared" / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for call in (lambda: PreparedCorpus.open(tmp_path / "prepared", "train"), lambda: prepare(config())):
        with pytest.raises(CorpusError, match=r"meta\.json is damaged; run `rela prepare --force`"):
            call()


def test_wide_vocabularies_keep_their_ids(tmp_path):
    from rela.data.shards import ShardWriter, shard_files

    writer = ShardWriter(tmp_path, "train", 1, 70_000)
    writer.add([([69_999, 5], [65_536])], np.zeros(1, np.int64), 0)
    assert np.fromfile(shard_files(tmp_path, "train", 0)[0], "<u4").tolist() == [69_999, 5, 65_536]
