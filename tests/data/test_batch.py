"""A batch: packing keeps every pair, filler belongs to no sentence, and what does not fit is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.data.batch import StaticShape, pack
from rela.data.subwords import PAD
from tests.data.batches import equal, unpack

sentences = st.lists(st.integers(4, 900), max_size=12)
pair_lists = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=12)


@given(pairs=pair_lists, extra=st.none() | st.tuples(*[st.integers(0, 9)] * 3))
def test_packing_keeps_every_pair_in_order(pairs, extra):
    source = sum(len(s) + 1 for s, _ in pairs)
    target = sum(len(t) + 1 for _, t in pairs)
    shape = extra and StaticShape(source + extra[0], target + extra[1], len(pairs) + extra[2])
    batch = pack(pairs, shape)
    assert unpack(batch) == [(list(s), list(t)) for s, t in pairs]
    assert (batch.sentences, batch.target_tokens) == (len(pairs), target)
    assert batch.source_packing.max_seqlen == max(len(s) + 1 for s, _ in pairs)
    assert batch.target_packing.max_seqlen == max(len(t) + 1 for _, t in pairs)
    assert batch.source_positions[:source].tolist() == [p for s, _ in pairs for p in range(len(s) + 1)]
    assert batch.target_positions[:target].tolist() == [p for _, t in pairs for p in range(len(t) + 1)]
    assert batch.source_packing.cu_seqlens.dtype == batch.target_packing.cu_seqlens.dtype == torch.int32
    assert all(tensor.dtype == torch.int64 for tensor in batch.tensors()[:5])
    if shape:
        assert [len(batch.source), len(batch.target_in), len(batch.source_packing.cu_seqlens)] == [
            shape.source,
            shape.target,
            shape.sentences + 1,
        ]
    # filler: no ids, no positions, no sentences
    for tensor, length in zip(batch.tensors()[:5], (source, target, target, source, target), strict=True):
        assert (tensor[length:] == PAD).all()
    assert (batch.source_packing.cu_seqlens[len(pairs) :] == source).all()
    assert (batch.target_packing.cu_seqlens[len(pairs) :] == target).all()


def test_packing_takes_arrays_of_the_stored_type():
    pairs = [([5, 6], [7]), ([8], [9, 10, 11])]
    arrays = [tuple(np.array(side, np.uint16) for side in pair) for pair in pairs]
    assert equal(pack(pairs), pack(arrays))


def test_packing_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="no pairs to pack"):
        pack([])
    with pytest.raises(ValueError, match="4 tokens in 1 sentences; the static shape holds 3 in 1"):
        pack([([5, 6, 7], [8])], StaticShape(3, 9, 1))
    with pytest.raises(ValueError, match="4 tokens in 2 sentences; the static shape holds 9 in 1"):
        pack([([5], [8])] * 2, StaticShape(9, 9, 1))


def test_a_batch_moves_as_a_whole():
    batch = pack([([5], [6])]).to("meta")
    assert len(batch.tensors()) == 7
    assert all(tensor.device.type == "meta" for tensor in batch.tensors())
    assert batch.sentences == 1
