"""Subwords drawn anew in each epoch: the same text, a function of seed, epoch and shard, and batches that resume."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rela.config import CorpusConfig, DataConfig
from rela.data.batching import BatchStream, PreparedCorpus
from rela.data.prepare import prepare
from rela.data.sampling import SubwordSampling
from rela.data.subwords import UNK, Subwords
from rela.toy import split, write_corpus


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def corpus(request, tmp_path_factory) -> PreparedCorpus:
    """200 pairs in shards of 90, of which one has a character that the vocabulary lacks."""
    folder = tmp_path_factory.mktemp("sampling")
    pairs, _, _ = split(200, 0, 0, seed=3)
    pairs[7] = dataclasses.replace(pairs[7], source=f"{pairs[7].source} ☃")
    write_corpus(folder, {"train": pairs})
    config = DataConfig(
        root=str(folder),
        train=(CorpusConfig("train.en", "train.de"),),
        directory=str(folder / "prepared"),
        vocabulary_size=300,
        subword_model=request.param,
        character_coverage=0.9999,
        shard_pairs=90,
    )
    prepare(config, threads=1)
    return PreparedCorpus.open(config.directory, "train")


LONGEST = 90


def sampling(corpus: PreparedCorpus, longest: int = LONGEST) -> SubwordSampling:
    return SubwordSampling(Subwords.load(corpus.vocabulary), 0.1, longest)


def test_the_text_stays_and_its_subwords_change(corpus):
    drawn = sampling(corpus)
    changed = unknown = 0
    for number in range(len(corpus.shard_sizes)):
        shard = corpus.shard(number)
        sampled = drawn.sample(shard, [1, 0, number], (99, 99))
        assert len(sampled) == len(shard)
        assert sampled.lengths().max() <= LONGEST
        for pair in range(len(shard)):
            for before, after in zip(shard.pair(pair), sampled.pair(pair), strict=True):
                assert drawn.subwords.decode(after) == drawn.subwords.decode(before)
                changed += not np.array_equal(before, after)
                if UNK in before:
                    unknown += 1
                    assert np.array_equal(before, after)
    assert changed > 150
    assert unknown == 1


def test_no_sentence_grows_over_a_limit(corpus):
    """One that would stays as it was."""
    shard = corpus.shard(0)
    source, target = (int(length) for length in shard.lengths().max(0))
    sampled = sampling(corpus).sample(shard, [1, 0, 0], (source, target))
    assert (sampled.lengths().max(0) <= (source, target)).all()
    assert not np.array_equal(sampled.ids, shard.ids)
    assert np.array_equal(sampling(corpus, 0).sample(shard, [1, 0, 0], (99, 99)).ids, shard.ids)


def test_what_is_drawn_is_a_function_of_seed_epoch_and_shard(corpus):
    drawn, longest = sampling(corpus), (99, 99)
    shard = corpus.shard(0)
    first = drawn.sample(shard, [1, 0, 0], longest)
    again = sampling(corpus).sample(shard, [1, 0, 0], longest)
    assert np.array_equal(first.ids, again.ids)
    assert np.array_equal(first.index, again.index)
    for seed in ([2, 0, 0], [1, 1, 0], [1, 0, 1]):
        assert not np.array_equal(drawn.sample(shard, seed, longest).ids, first.ids)


@pytest.mark.parametrize("static", [False, True])
def test_batches_go_on_from_any_position(corpus, static):
    """Over the end of an epoch, with a thread or without."""

    def stream(**options):
        return BatchStream(corpus, 400, 5, static=static, sampling=sampling(corpus), **options)

    with stream() as straight:
        batches, positions = [], []
        for _ in range(40):
            batches.append(next(straight))
            positions.append(straight.position)
    assert positions[-1]["epoch"] >= 1
    for start in (0, 7, 20, 33):
        with stream(start=positions[start], prefetch=start % 2) as resumed:
            for wanted in batches[start + 1 : start + 5]:
                found = next(resumed)
                assert all(map(np.array_equal, found.tensors(), wanted.tensors()))
    assert len({batch.shape for batch in batches}) == 1 or not static


def test_an_empty_shard_stays_empty(corpus):
    shard = corpus.shard(0)
    empty = dataclasses.replace(shard, ids=shard.ids[:0], index=shard.index[:1], corpus=shard.corpus[:0])
    assert len(sampling(corpus).sample(empty, [1, 0, 0], (9, 9))) == 0
