"""Attention of a decoding step is the equation over keys gathered by ancestry, and so are the parts of the norm."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.search import step_attention
from rela.kernels.search.step_attention import BeamCache, Heads, KeptQueries, attend_blocks, attend_cache, groups_of
from tests.kernels.exactness import ACTIVATIONS as FUSED
from tests.kernels.exactness import DEVICE, draw

ACTIVATIONS = {"softmax": lambda scores: scores.softmax(-1), **FUSED}


def equation(q, k, v, heads, activation, threshold, gate):
    """Gated context [T, C] and squares [T, H] of q [T, C] over k and v [S, C], in float64."""
    q, k, v = (x.double().unflatten(-1, (heads, -1)).transpose(0, 1) for x in (q, k, v))
    scores = q @ k.mT * q.size(-1) ** -0.5
    if threshold is not None:
        scores = scores - threshold.double()[:, None, None]
    context = ACTIVATIONS[activation](scores) @ v
    squares = context.square().sum(-1).T
    merged = context.transpose(0, 1).flatten(1)
    return (merged if gate is None else merged * torch.sigmoid(gate.double() * merged)), squares


def by_head(squares, heads):
    """The sums that a head leaves, put together."""
    return squares.double().unflatten(-1, (heads, -1)).sum(-1)


def beam_bits_of(ancestry):
    """For every cache entry [B · capacity · K] the beams that have it in their prefix, as bits.

    ancestry [B, K, capacity] says which beam computed each position of a beam's prefix.
    """
    beams = torch.arange(ancestry.size(1), device=ancestry.device)
    owns = ancestry.transpose(1, 2)[..., None] == beams  # [B, capacity, K, the entry's beam]
    return (owns.int() << beams[:, None].int()).sum(2, dtype=torch.int32).flatten()


def options(case, heads, width):
    """Threshold and gate of every other case."""
    return (draw(heads, seed=8) * 0.2 if case % 2 else None), (draw(width, seed=9) if case % 3 == 1 else None)


@pytest.mark.parametrize(("case", "activation"), list(enumerate(ACTIVATIONS)))
@pytest.mark.parametrize(("length", "skip_from"), [(0, 8), (1, 1), (70, 8), (70, 1)])
def test_a_row_sees_its_prefix_and_itself(case, activation, length, skip_from, monkeypatch):
    """Two sentences, padding and one that is done; a prefix comes from any beam; unused entries skipped or not."""
    monkeypatch.setattr(step_attention, "SKIP_UNUSED_FROM", skip_from)
    beam, heads, size, capacity = 3, 2, 12, 75
    width = heads * size
    threshold, gate = options(case, heads, width)
    keys, values = draw(3 * capacity * beam, width, seed=1), draw(3 * capacity * beam, width, seed=2)
    untouched = keys.clone()
    ancestry = torch.randint(0, beam, (3, beam, capacity), dtype=torch.int8).to(DEVICE)
    sentences = [2, -1, 1, 0]
    integers = [
        torch.tensor(x, dtype=torch.int32, device=DEVICE)
        for x in (sentences, [5, length, length], [1, 0, 0], [capacity])
    ]
    qkv = draw(len(sentences) * beam, 3 * width, seed=3)
    context, squares = (torch.full((12, n), 7.0, device=DEVICE) for n in (width, heads * groups_of(size)))
    cache = BeamCache(keys, values, beam_bits_of(ancestry), *integers, beam)
    attend_cache(qkv, cache, Heads(heads, activation, gate, threshold), context, squares)
    for row in range(12):
        sentence = sentences[row // beam]
        if sentence < 1:
            assert (context[row] == 7.0).all()
            continue
        entries = [(sentence * capacity + p) * beam + int(ancestry[sentence, row % beam, p]) for p in range(length)]
        new = (sentence * capacity + length) * beam + row % beam
        q, k, v = qkv[row].split(width)
        assert torch.equal(keys[new], k)
        assert torch.equal(values[new], v)
        untouched[new] = k
        prefix = torch.tensor([*entries, new], device=DEVICE)
        wanted = equation(q[None], keys[prefix], values[prefix], heads, activation, threshold, gate)
        torch.testing.assert_close(context[row].double(), wanted[0][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(by_head(squares[row], heads), wanted[1][0], rtol=1e-5, atol=1e-5)
    assert torch.equal(keys, untouched), "nothing else was written"


@pytest.mark.parametrize(("case", "activation"), list(enumerate(ACTIVATIONS)))
def test_blocks_see_the_keys_of_their_sentence(case, activation):
    heads, size = 2, 20
    width = heads * size
    threshold, gate = options(case, heads, width)
    # two blocks of one sentence, an empty one, and a sentence longer than a block of keys
    table = [[3, 5, 0, 7], [8, 2, 0, 7], [0, 0, 0, 0], [0, 3, 7, 70]]
    q = draw(11, 3 * width, seed=1)[:, width : 2 * width]
    memory = draw(80, 2 * width, seed=2)
    keys, values = memory.split(width, dim=1)
    context, squares = (torch.full((11, n), 7.0, device=DEVICE) for n in (width, heads * groups_of(size)))
    attend_blocks(
        q,
        keys,
        values,
        torch.tensor(table, dtype=torch.int32, device=DEVICE),
        Heads(heads, activation, gate, threshold),
        context,
        squares,
        blocks=4,
        queries=5,
    )
    assert (context[10] == 7.0).all(), "a row in no block"
    for first_q, n_q, first_k, n_k in table:
        rows, seen = slice(first_q, first_q + n_q), slice(first_k, first_k + n_k)
        wanted = equation(q[rows], keys[seen], values[seen], heads, activation, threshold, gate)
        torch.testing.assert_close(context[rows].double(), wanted[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(by_head(squares[rows], heads), wanted[1], rtol=1e-5, atol=1e-5)


def test_queries_are_kept_by_position_and_beam():
    """Of sentences that are not done, in another order than they are stored, with padding between."""
    beam, capacity, width = 2, 3, 40
    table = [[0, 2, 0, 4], [0, 0, 0, 0], [4, 2, 4, 3], [6, 2, 4, 3]]
    q, memory = draw(8, width, seed=1), draw(7, width, seed=2)
    active, lengths, done, room = (
        torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([2, -1, 0, 1], [1, 3, 2], [0, 1, 0], [capacity])
    )
    kept = torch.zeros(3 * capacity * beam, width, device=DEVICE)
    attend_blocks(
        q,
        memory,
        memory,
        torch.tensor(table, dtype=torch.int32, device=DEVICE),
        Heads(2, "relu"),
        torch.empty(8, width, device=DEVICE),
        None,
        blocks=4,
        queries=beam,
        kept=KeptQueries(kept, active, lengths, done, room),
    )
    wanted = torch.zeros_like(kept).view(3, capacity, beam, width)
    wanted[2, 2], wanted[0, 1] = q[:2], q[4:6]
    assert torch.equal(kept, wanted.flatten(0, 2))


@pytest.mark.parametrize("activation", ["relu", "relu2"])
def test_a_row_that_looks_at_nothing_gives_zeros(activation):
    q = draw(2, 16, seed=1).abs()
    context, squares = torch.empty(2, 16, device=DEVICE), torch.empty(2, groups_of(16), device=DEVICE)
    table = torch.tensor([[0, 2, 0, 2]], dtype=torch.int32, device=DEVICE)
    attend_blocks(
        q, -q, q, table, Heads(1, activation, torch.ones(16, device=DEVICE)), context, squares, blocks=1, queries=2
    )
    assert not context.any()
    assert not squares.any()
