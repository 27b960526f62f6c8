"""The search kernels give what rela.decoding.beam.Search gives, from the same log-probabilities."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from rela.decoding.beam import Search, length_penalty
from rela.kernels.search.beam_step import Hypotheses, advance, begin, read_back
from tests.kernels.exactness import DEVICE

BOS, EOS, BANNED = 1, 2, (0, 1)


def empty_state(sentences: int, beam: int, capacity: int) -> Hypotheses:
    entries = sentences * capacity * beam

    def table(dtype, *size):
        return torch.full(size, 99, dtype=dtype, device=DEVICE)

    return Hypotheses(
        *(table(torch.float32, sentences, beam) for _ in range(3)),
        *(table(torch.int32, sentences, beam) for _ in range(3)),
        table(torch.int32, sentences),
        table(torch.int32, sentences),
        table(torch.int32, entries),
        table(torch.int32, entries),
        table(torch.int8, entries),
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 5),
    vocabulary=st.integers(4, 40),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    limits=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_every_step_is_that_of_the_reference(seed, beam, vocabulary, alpha, limits):
    """Sentences are active in another order than they are stored, with padding between; done ones no longer change."""
    generator = torch.Generator().manual_seed(seed)
    count, sentences, capacity = (2 * beam if beam > 1 else 1), len(limits), max(limits) + 1
    search = Search(torch.tensor(limits), beam, EOS, alpha, BANNED)
    rows: dict[tuple[int, tuple[int, ...]], int] = {(sentence, ()): 0 for sentence in range(sentences)}
    state = empty_state(sentences, beam, capacity)
    begin(state, sentences, BOS)
    active = [*range(sentences)][::-1]
    active.insert(1, -1)
    penalties = torch.tensor([1.0, *(length_penalty(n, alpha) for n in range(1, capacity + 2))], device=DEVICE)
    on_device = {"active": active, "limits": limits, "capacity": [capacity]}
    on_device = {name: torch.tensor(x, dtype=torch.int32, device=DEVICE) for name, x in on_device.items()}
    for step in range(max(limits) + 1):
        log_probs = (2 * torch.randn(sentences, beam, vocabulary, generator=generator)).log_softmax(-1)
        allowed = log_probs.clone()
        allowed[..., list(BANNED)] = -torch.inf
        at_limit = torch.tensor([step >= limit for limit in limits])
        allowed[at_limit.nonzero().flatten()[:, None], :, torch.arange(vocabulary) != EOS] = -torch.inf
        kept = min(count, vocabulary)
        best, tokens = allowed.topk(kept, dim=-1)
        shown = torch.full((len(active), beam, count), -torch.inf)
        words = torch.full((len(active), beam, count), 0x7FFFFFFF, dtype=torch.int32)
        for entry, sentence in enumerate(active):
            if sentence >= 0:
                shown[entry, :, :kept], words[entry, :, :kept] = best[sentence], tokens[sentence].int()
        advance(
            state,
            shown.flatten(0, 1).to(DEVICE),
            words.flatten(0, 1).to(DEVICE),
            **on_device,
            penalties=penalties,
            sentences=len(active),
            vocabulary=vocabulary,
            eos=EOS,
        )
        search.advance(log_probs.flatten(0, 1))
        assert state.done.bool().tolist() == search.done.tolist()
        undone = ~search.done
        torch.testing.assert_close(state.alive.cpu()[undone], search.alive[undone])
        alive = undone[:, None] & ~torch.isneginf(search.alive)
        assert torch.equal(state.last_tokens.cpu()[alive], search.alive_tokens[..., step][alive].int())
        for sentence, k in alive.nonzero().tolist():
            rows.setdefault((sentence, tuple(search.alive_tokens[sentence, k, : step + 1].tolist())), k)
        if bool(search.done.all()):
            break
    found = torch.full((sentences, beam, 3 + max(limits)), -1, dtype=torch.int32, device=DEVICE)
    entries = torch.full_like(found[..., 2:], -1)
    read_back(state, on_device["capacity"], found, entries)
    best = torch.full_like(found[:, :1], -1)
    read_back(state, on_device["capacity"], best)
    assert torch.equal(best, found[:, :1])
    assert torch.equal(found[..., 0].contiguous().view(torch.float32), state.finished)
    assert torch.equal(found[..., 1].contiguous().view(torch.float32), state.finished_log_probs)
    torch.testing.assert_close(state.finished.cpu(), search.finished)
    torch.testing.assert_close(state.finished_log_probs.cpu(), search.finished_log_probs)
    for sentence, hypotheses in enumerate(search.results()):
        mine = [tuple(row[3 : 3 + row[2]]) for row in found[sentence, : len(hypotheses)].tolist()]
        assert mine == [hypothesis.tokens for hypothesis in hypotheses]
        for tokens, computed in zip(mine, entries[sentence].tolist(), strict=False):
            positions = range(len(tokens) + 1)
            beams = [rows[sentence, tokens[:position]] for position in positions]
            wanted = [(sentence * capacity + p) * beam + k for p, k in zip(positions, beams, strict=True)]
            assert computed[: len(wanted)] == wanted, "each token and </s> was computed after the prefix before it"


def test_beam_bits_follow_the_parents_over_more_than_one_block():
    """From a long prefix on: beam i's prefix is its parent's, and the parent computed the position just decoded."""
    beam, capacity, start, vocabulary = 3, 300, 250, 12
    generator = torch.Generator().manual_seed(0)
    state = empty_state(2, beam, capacity)
    begin(state, 2, BOS)
    state.lengths.fill_(start)
    wanted = torch.randint(0, beam, (2, beam, start), generator=generator).tolist()  # who computed each position
    beam_bits = state.beam_bits.view(2, capacity, beam)
    for sentence, i, p in itertools.product(range(2), range(beam), range(start)):
        beam_bits[sentence, p] = 0 if i == 0 else beam_bits[sentence, p]
        beam_bits[sentence, p, wanted[sentence][i][p]] += 1 << i
    integers = [torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([0, 1], [299, 299], [capacity])]
    penalties = torch.ones(capacity + 1, device=DEVICE)
    for step in range(start, start + 12):
        log_probs = torch.randn(2 * beam, vocabulary, generator=generator).log_softmax(-1)
        log_probs[:, :3] = -torch.inf
        best, tokens = log_probs.topk(2 * beam)
        advance(
            state,
            best.to(DEVICE),
            tokens.int().to(DEVICE),
            *integers,
            penalties,
            sentences=2,
            vocabulary=vocabulary,
            eos=EOS,
        )
        parents = state.parents.view(2, capacity, beam)[:, step].tolist()
        wanted = [[[*wanted[sentence][parent], parent] for parent in parents[sentence]] for sentence in range(2)]
        seen = (beam_bits[:, None, : step + 1] >> torch.arange(beam, device=DEVICE)[:, None, None]) & 1
        assert (seen.sum(-1) == 1).all(), "a hypothesis has one prefix"
        assert seen.argmax(-1).tolist() == wanted
    assert len({tuple(prefix) for prefix in wanted[0]}) > 1, "not all are the same"
