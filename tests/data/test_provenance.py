"""What is prepared is compared with what a configuration says: settings, files, text."""

import dataclasses
import json

import pytest

from rela.config import CorpusConfig
from rela.data.prepare import prepare
from rela.data.provenance import differing_for_training, missing_text
from rela.data.shards import read_meta
from rela.data.subwords import Subwords
from tests.data.parallel_text import make_pairs, write_pairs


@pytest.fixture
def prepared(config, tmp_path):
    """A configuration that was prepared."""
    settings = config(
        valid=write_pairs(tmp_path, "valid", make_pairs(20, seed=1)),
        test=write_pairs(tmp_path, "test", make_pairs(20, seed=2)),
    )
    prepare(settings)
    return settings


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_tokens": 9}, "max_tokens was 256, now 9"),
        ({"seed": 2}, "seed was 1, now 2"),
        ({"subword_model": "unigram"}, "subword_model was bpe, now unigram"),
        ({"shard_pairs": 65}, "shard_pairs was 64, now 65"),
        ({"on_bad_line": "raise"}, "on_bad_line was skip, now raise"),
        ({"train": (CorpusConfig("train.en", "train.de", weight=2.0),)}, "the weight of train.en was 1.0, now 2.0"),
        ({"train": (CorpusConfig("absent.en", "train.de"),)}, "train.en then, absent.en now, which is not there"),
        ({"train": (CorpusConfig("train.de", "train.en"),)}, "train.de has changed"),
        ({"train": (CorpusConfig("train.en", "train.de"),) * 2}, "2 corpora then, 3 now"),
        ({"valid": CorpusConfig("test.en", "test.de")}, "test.en has changed"),
        ({"valid": None}, None),
        ({"test": CorpusConfig("absent.en", "absent.de")}, None),
        ({"train": (CorpusConfig("copy.en", "train.de"),)}, None),
        ({}, None),
    ],
)
def test_what_shapes_the_ids_must_be_the_same_and_nothing_else(prepared, tmp_path, changes, named):
    (tmp_path / "copy.en").write_bytes((tmp_path / "train.en").read_bytes())
    changed = dataclasses.replace(prepared, **changes)
    assert differing_for_training(read_meta(tmp_path / "prepared"), changed) == named


def test_what_older_versions_prepared_is_taken(prepared, tmp_path):
    """They wrote down no kind of subword model: there was one."""
    meta = read_meta(tmp_path / "prepared")
    del meta["settings"]["subword_model"]
    assert differing_for_training(meta, prepared) is None
    unigram = dataclasses.replace(prepared, subword_model="unigram")
    assert differing_for_training(meta, unigram) == "subword_model was bpe, now unigram"
    (tmp_path / "prepared" / "meta.json").write_text(json.dumps(meta))
    assert prepare(prepared).reused


@pytest.mark.parametrize("attack", ["reversed", "shuffled targets", "one word"])
def test_other_text_is_seen(prepared, tmp_path, attack):
    """Each has the lines, the bytes and the words of the text before."""
    pairs = make_pairs(300)
    if attack == "reversed":
        pairs = pairs[::-1]
    elif attack == "shuffled targets":
        pairs = [(source, target) for (source, _), (_, target) in zip(pairs, pairs[::-1], strict=True)]
    else:
        pairs[7] = pairs[7][0], pairs[7][1][::-1]
    write_pairs(tmp_path, "train", pairs)
    found = differing_for_training(read_meta(tmp_path / "prepared"), prepared)
    assert found is not None
    assert "has changed" in found


def test_a_vocabulary_that_is_named_must_be_the_one(prepared, tmp_path):
    meta = read_meta(tmp_path / "prepared")
    assert differing_for_training(meta, dataclasses.replace(prepared, subwords="prepared/subwords.model")) is None
    model = Subwords.load(tmp_path / "prepared" / "subwords.model").model
    (tmp_path / "other.model").write_bytes(model + b"\0")
    found = differing_for_training(meta, dataclasses.replace(prepared, subwords="other.model"))
    assert found == f"its vocabulary is not {tmp_path / 'other.model'}"


def test_text_that_is_gone_is_named(prepared, tmp_path):
    assert missing_text(prepared) == []
    (tmp_path / "train.de").unlink()
    assert missing_text(prepared) == [tmp_path / "train.de"]
    assert differing_for_training(read_meta(tmp_path / "prepared"), prepared) is None
