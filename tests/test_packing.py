"""Packings: padding and back is the identity, and no row belongs to two sentences."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.packing import Packing, allowed_pairs

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=5)


def packing(lengths: list[int]) -> Packing:
    return Packing(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), max(lengths))


@given(lengths=LENGTHS, filler=st.integers(0, 3))
def test_padding_and_back_keeps_rows_and_clears_filler(lengths: list[int], filler: int):
    made = packing(lengths)
    rows = sum(lengths) + filler
    packed = torch.arange(1.0, rows * 6 + 1).view(rows, 2, 3)
    dense = made.pad(packed)
    assert dense.shape == (len(lengths), 2, max(lengths), 3)
    for b, length in enumerate(lengths):
        begin = sum(lengths[:b])
        assert torch.equal(dense[b, :, :length].transpose(0, 1), packed[begin : begin + length])
        assert not dense[b, :, length:].any()
    back = made.unpad(dense, rows)
    assert torch.equal(back, made.zero_filler(packed))
    assert torch.equal(back[: sum(lengths)], packed[: sum(lengths)])
    assert not back[sum(lengths) :].any()


@given(lengths=LENGTHS, filler=st.integers(0, 3))
def test_every_row_has_its_sentence_and_filler_has_none(lengths: list[int], filler: int):
    made = packing(lengths)
    wanted = [b for b, length in enumerate(lengths) for _ in range(length)] + [len(lengths)] * filler
    assert made.sentence_of(sum(lengths) + filler).tolist() == wanted
    assert made.sentences == len(lengths)
    assert made.lengths.tolist() == lengths


@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4), causal=st.booleans())
def test_a_query_sees_the_keys_of_its_own_sentence(pairs: list[tuple[int, int]], causal: bool):
    queries, keys = packing([t for t, _ in pairs]), packing([s for _, s in pairs])
    allowed = allowed_pairs(queries, keys, causal)
    full = torch.ones(len(pairs), 1, queries.max_seqlen, keys.max_seqlen, dtype=torch.bool) & allowed
    for b, (T, S) in enumerate(pairs):
        for t in range(T):
            wanted = [s < S and (not causal or s <= t + S - T) for s in range(keys.max_seqlen)]
            assert full[b, 0, t].tolist() == wanted


def test_another_tensor_keeps_the_longest():
    made = packing([2, 3]).map(lambda x: x.long())
    assert made.cu_seqlens.dtype == torch.int64
    assert made.max_seqlen == 3
