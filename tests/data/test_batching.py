"""The stream of batches is the same however it is cut, resumed or shared."""

import gc
import itertools
import json
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rela.data.batching import BatchStream, PreparedCorpus, one_pass, pack, static_shape
from rela.data.shards import ShardWriter
from tests.data.batches import equal, unpack


def make_corpus(folder, pairs, shards=1, corpora=None, weights=(1.0,), seed=0):
    """A prepared split straight from ids: what `prepare` writes, without learning a vocabulary for it."""
    folder = folder / f"corpus-{len(list(folder.iterdir()))}"
    (folder / "ids").mkdir(parents=True)
    writer = ShardWriter(folder / "ids", "train", shards, 1000)
    places = np.random.default_rng(seed).integers(shards, size=len(pairs))
    corpora = np.zeros(len(pairs), int) if corpora is None else np.array(corpora)
    for number in range(len(weights)):
        chosen = corpora == number
        writer.add([pair for pair, mine in zip(pairs, chosen, strict=True) if mine], places[chosen], number)
    return PreparedCorpus(folder, "train", writer.facts() | {"weights": list(weights)}, 1000)


def numbered_pairs(count, seed=0, longest=20):
    """Pairs that can be told apart: the first two source ids are the pair's number."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest, size=(count, 2))
    return [([4 + n // 900, 4 + n % 900, *[7] * int(s)], [9] * int(t)) for n, (s, t) in enumerate(lengths)]


def multiset(pairs):
    return Counter((tuple(source), tuple(target)) for source, target in pairs)


def take(stream, count):
    with stream:
        return list(itertools.islice(stream, count))


def epoch_of(stream):
    """The batches up to the first position in the next epoch."""
    batches = []
    with stream:
        first = stream.position["epoch"]
        for batch in stream:
            batches.append(batch)
            if stream.position["epoch"] > first:
                return batches


@pytest.mark.parametrize("static", [False, True])
def test_an_epoch_holds_every_pair_once_within_the_budget(tmp_path, static):
    pairs = numbered_pairs(500)
    corpus = make_corpus(tmp_path, pairs, shards=3)
    for seed in (1, 2):
        batches = epoch_of(BatchStream(corpus, 100, seed, static=static))
        assert multiset(itertools.chain.from_iterable(map(unpack, batches))) == multiset(pairs)
        assert all(batch.target_tokens <= 100 for batch in batches)
        assert all(batch.target_tokens == batch.target_packing.cu_seqlens[-1] for batch in batches)


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 80),
    shards=st.integers(1, 3),
    tokens=st.integers(20, 90),
    seed=st.integers(0, 9),
    static=st.booleans(),
    cut=st.integers(0, 30),
)
def test_resumed_is_uninterrupted(tmp_path_factory, count, shards, tokens, seed, static, cut):
    corpus = make_corpus(tmp_path_factory.mktemp("c"), numbered_pairs(count, seed, longest=15), shards)
    options = {"static": static, "prefetch": 0}
    whole = take(BatchStream(corpus, tokens, seed, **options), cut + 10)
    stream = BatchStream(corpus, tokens, seed, **options)
    take(stream, cut)
    position = json.loads(json.dumps(stream.position))
    resumed = take(BatchStream(corpus, tokens, seed, start=position, **options), 10)
    assert all(equal(left, right) for left, right in zip(whole[cut:], resumed, strict=True))


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 80),
    shards=st.integers(1, 3),
    world=st.integers(2, 3),
    static=st.booleans(),
    cut=st.integers(0, 8),
)
def test_several_ranks_interleaved_are_one_process(tmp_path_factory, count, shards, world, static, cut):
    corpus = make_corpus(tmp_path_factory.mktemp("c"), numbered_pairs(count, longest=15), shards)
    options = {"static": static, "prefetch": 0}
    alone = take(BatchStream(corpus, 60, 3, **options), world * (cut + 4))
    streams = [BatchStream(corpus, 60, 3, rank=rank, world=world, **options) for rank in range(world)]
    rounds = [[next(stream) for stream in streams] for _ in range(cut)]
    # every rank stands at the same place, so one checkpoint serves them all, also for another number of ranks
    assert all(stream.position == streams[0].position for stream in streams)
    start = streams[0].position
    streams = [BatchStream(corpus, 60, 3, rank=rank, world=world, start=start, **options) for rank in range(world)]
    rounds += [[next(stream) for stream in streams] for _ in range(4)]
    for left, right in zip(alone, itertools.chain.from_iterable(rounds), strict=True):
        assert equal(left, right)
    fewer = take(BatchStream(corpus, 60, 3, start=start, **options), 4)
    assert all(equal(left, right) for left, right in zip(alone[world * cut :], fewer, strict=False))


def test_the_order_depends_on_seed_and_epoch_alone(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(300), shards=2)
    first = epoch_of(BatchStream(corpus, 80, 1))
    assert all(equal(a, b) for a, b in zip(first, epoch_of(BatchStream(corpus, 80, 1, prefetch=0)), strict=True))
    other_seed = epoch_of(BatchStream(corpus, 80, 2))
    next_epoch = epoch_of(BatchStream(corpus, 80, 1, start={"epoch": 1, "batch": 0}))
    assert not equal(first[0], other_seed[0])
    assert not equal(first[0], next_epoch[0])


def test_sentences_of_similar_length_are_validated_together(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(2000, longest=60))
    totals = [[len(s) + len(t) for s, t in unpack(batch)] for batch in one_pass(corpus, 400)]
    assert np.mean([np.ptp(total) for total in totals]) < 4


def test_every_batch_to_learn_from_has_the_lengths_of_the_corpus(tmp_path):
    pairs = numbered_pairs(2000, longest=60)
    batches = epoch_of(BatchStream(make_corpus(tmp_path, pairs), 2000, 1))
    lengths = [len(s) + len(t) for s, t in pairs]
    held = [[len(s) + len(t) for s, t in unpack(batch)] for batch in batches[:-1]]  # the last holds what is left
    for total in held:  # the mean of n drawn lengths is within five of its standard deviations
        assert abs(np.mean(total) - np.mean(lengths)) < 5 * np.std(lengths) / np.sqrt(len(total))
    assert np.mean([np.std(total) for total in held]) > 0.9 * np.std(lengths)


@pytest.mark.parametrize("tokens", [1000, 4096])
def test_static_batches_have_one_shape_and_are_well_filled(tmp_path, tokens):
    generator = np.random.default_rng(0)
    target = np.clip(generator.lognormal(3.1, 0.6, 6000), 1, 200).astype(int)
    source = np.clip(target * generator.lognormal(0.1, 0.25, 6000), 1, 200).astype(int)
    pairs = [([7] * s, [9] * t) for s, t in zip(source.tolist(), target.tolist(), strict=True)]
    corpus = make_corpus(tmp_path, pairs)
    batches = epoch_of(BatchStream(corpus, tokens, 1, static=True))
    shape = static_shape(corpus, tokens)
    assert {tuple(map(len, batch.tensors())) for batch in batches} == {
        (shape.source, tokens, tokens, shape.source, tokens, shape.sentences + 1, shape.sentences + 1)
    }
    longest = {(batch.source_packing.max_seqlen, batch.target_packing.max_seqlen) for batch in batches}
    assert longest == {(source.max() + 1, target.max() + 1)}
    full = batches[:-1]  # the last one holds what is left
    assert np.mean([batch.target_tokens for batch in full]) > 0.99 * tokens
    assert np.mean([int(batch.source_packing.cu_seqlens[-1]) for batch in full]) > 0.97 * shape.source
    assert min(batch.target_tokens for batch in full) > 0.95 * tokens


def test_a_batch_holds_the_same_pairs_static_or_not(tmp_path):
    corpora = [i % 2 for i in range(200)]
    corpus = make_corpus(tmp_path, numbered_pairs(200), shards=2, corpora=corpora, weights=(1.0, 0.3))
    for epoch in range(4):
        start = {"epoch": epoch, "batch": 0}
        plain, static = (epoch_of(BatchStream(corpus, 90, 5, static=static, start=start)) for static in (False, True))
        assert [unpack(batch) for batch in plain] == [unpack(batch) for batch in static]


@pytest.mark.parametrize("weight", [2.0, 0.5, 1.25, 3.0])
def test_weights_are_kept_exactly_over_epochs(tmp_path, weight):
    pairs = numbered_pairs(200)
    corpora = [int(i >= 120) for i in range(200)]
    corpus = make_corpus(tmp_path, pairs, shards=2, corpora=corpora, weights=(1.0, weight))
    seen = Counter()
    for epoch in range(4):
        held = multiset(
            itertools.chain.from_iterable(
                map(unpack, epoch_of(BatchStream(corpus, 200, 1, start={"epoch": epoch, "batch": 0})))
            )
        )
        for number, (source, target) in enumerate(pairs):
            times = held[tuple(source), tuple(target)]
            expected = [weight, 1.0][number < 120]
            assert times in (int(np.floor(expected)), int(np.ceil(expected)))
        seen += held
    for number, (source, target) in enumerate(pairs):
        assert seen[tuple(source), tuple(target)] == 4 * [weight, 1.0][number < 120]


def test_a_fraction_is_another_half_each_time(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(200), weights=(0.5,))
    first, second = (
        multiset(
            itertools.chain.from_iterable(
                map(unpack, epoch_of(BatchStream(corpus, 200, 1, start={"epoch": epoch, "batch": 0})))
            )
        )
        for epoch in (0, 1)
    )
    assert not first & second
    assert 60 < first.total() < 140  # 100 ± 5 standard deviations


@pytest.mark.parametrize("static", [False, True])
def test_a_pair_over_the_budget_is_dropped_and_counted(tmp_path, static):
    pairs = [*numbered_pairs(50), ([5], [9] * 500), ([5] * 500, [9])]
    corpus = make_corpus(tmp_path, pairs)
    stream = BatchStream(corpus, 100, 1, static=static, source_limit=100)
    held = multiset(itertools.chain.from_iterable(map(unpack, epoch_of(stream))))
    assert held == multiset(pairs[:50])
    assert stream.dropped == 2


def test_a_budget_that_nothing_fits_is_an_error_and_no_endless_loop(tmp_path):
    corpus = make_corpus(tmp_path, [([5] * 9, [9] * 9)] * 5, weights=(0.2,))
    with BatchStream(corpus, 4, 1) as stream, pytest.raises(ValueError, match="no pair fits a batch of 4 target"):
        next(stream)
    assert list(stream) == []


def test_one_pass_is_complete_and_shared_among_ranks(tmp_path):
    pairs = [*numbered_pairs(100), ([5], [9] * 500)]
    corpus = make_corpus(tmp_path, pairs, shards=2)
    for static in (False, True):
        alone = list(one_pass(corpus, 100, static=static))
        assert multiset(itertools.chain.from_iterable(map(unpack, alone))) == multiset(pairs)
        halves = [list(one_pass(corpus, 100, rank=rank, world=2, static=static)) for rank in (0, 1)]
        for number, batch in enumerate(alone):
            assert equal(batch, halves[number % 2][number // 2])


def test_bad_arguments_are_named(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(10))
    with pytest.raises(ValueError, match="rank is 2; wanted one of 2"):
        BatchStream(corpus, 50, 1, rank=2, world=2)
    with pytest.raises(ValueError, match="tokens is 0"):
        BatchStream(corpus, 0, 1)
    with pytest.raises(ValueError, match="wanted epoch, shard and batch"):
        BatchStream(corpus, 50, 1, start={"step": 3})
    with pytest.raises(ValueError, match="shard 7; the corpus has 1"):
        BatchStream(corpus, 50, 1, start={"epoch": 0, "shard": 7, "batch": 0})


def running():
    return [thread for thread in threading.enumerate() if thread.name == "batches"]


def test_an_error_in_the_background_surfaces_and_ends_the_thread(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(300), shards=3)
    stream = BatchStream(corpus, 60, 1, prefetch=2)
    next(stream)
    for path in (corpus.directory / "ids").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="train-0000"):
        list(stream)
    assert list(stream) == []
    assert not running()


def test_closing_or_forgetting_a_stream_ends_its_thread(tmp_path):
    corpus = make_corpus(tmp_path, numbered_pairs(300))
    stream = BatchStream(corpus, 60, 1, prefetch=1)
    next(stream)
    assert running()
    stream.close()
    stream.close()
    assert not running()
    assert list(stream) == []
    stream = BatchStream(corpus, 60, 1, prefetch=1)
    next(stream)
    del stream
    gc.collect()
    assert not running()


def test_prefetching_is_bounded(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("rela.data.batching.pack", lambda *a: made.append(1) or pack(*a))
    corpus = make_corpus(tmp_path, numbered_pairs(300))
    with BatchStream(corpus, 60, 1, prefetch=3) as stream:
        next(stream)
        threading.Event().wait(0.3)
        assert len(made) <= 1 + 3 + 1  # taken, in the queue, in the thread's hand
