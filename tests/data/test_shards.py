"""Shards of ids on disk: what is wrong with them is named, and wide ids are kept."""

import json

import numpy as np
import pytest

from rela.data.corpus import CorpusError
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus


def test_opening_names_what_is_wrong(config, tmp_path):
    prepared = tmp_path / "prepared"
    with pytest.raises(CorpusError, match="holds no prepared corpus"):
        PreparedCorpus.open(prepared, "train")
    prepare(config())
    with pytest.raises(CorpusError, match="has no split 'valid'; it has train"):
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

    model = prepared / "subwords.model"
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


def test_wide_vocabularies_keep_their_ids(tmp_path):
    from rela.data.shards import ShardWriter, shard_files

    writer = ShardWriter(tmp_path, "train", 1, 70_000)
    writer.add([([69_999, 5], [65_536])], np.zeros(1, np.int64), 0)
    assert np.fromfile(shard_files(tmp_path, "train", 0)[0], "<u4").tolist() == [69_999, 5, 65_536]
