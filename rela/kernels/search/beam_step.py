"""One step of beam search on the device: rela.decoding.beam.Search, one program a sentence.

Nothing is moved when hypotheses are reordered. The cache has an entry for every position of every beam, and the bits of
an entry say which beams have it in their prefix. The tokens of a hypothesis are found at the end by following parents
backwards. `active` lists the sentences that a step computes, -1 for padding: those that are done leave by a new list.

Letters beside those of `rela.attention`: A entries of `active`, R = A · K rows, K is `beam`. Sentence b has
`capacity` positions of the cache; entry (b · capacity + position) · K + k is that of beam k at a position.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import power_of_2
from rela.kernels.early_launch import early, wait_for_results
from rela.kernels.search.top_candidates import EMPTY, NO_INDEX, index_of, sort_key, value_of


@dataclass(frozen=True)
class Hypotheses:
    """The alive and finished hypotheses of every sentence, and the history their tokens are read from."""

    alive: Tensor
    """float32 [B, K]: log-probabilities, best first."""
    finished: Tensor
    """float32 [B, K]: scores, best first; -inf where there is none."""
    finished_log_probs: Tensor
    finished_lengths: Tensor
    """int32 [B, K]: tokens, </s> not counted."""
    finished_beams: Tensor
    """int32 [B, K]: the beam that the last token was in."""
    last_tokens: Tensor
    """int32 [B, K]: the last token of each hypothesis alive."""
    lengths: Tensor
    """int32 [B]: tokens decoded so far."""
    done: Tensor
    """int32 [B]: 1 when no hypothesis alive can become better than the worst finished one."""
    beam_bits: Tensor
    """int32 [entries]: bit k says that beam k has the entry in its prefix."""
    tokens: Tensor
    """int32 [entries]."""
    parents: Tensor
    """int8 [entries]: the beam that each hypothesis was in one token before."""


def begin(state: Hypotheses, sentences: int, bos: int) -> None:
    """Give each of the first sentences one empty hypothesis."""
    beam = state.alive.size(1)
    begin_kernel[(sentences,)](
        state.alive,
        state.finished,
        state.finished_log_probs,
        state.finished_lengths,
        state.finished_beams,
        state.last_tokens,
        state.lengths,
        state.done,
        BOS=bos,
        BEAM=beam,
        BK=power_of_2(beam),
        num_warps=1,
    )


@triton.jit
def begin_kernel(
    alive,
    finished,
    finished_log_probs,
    finished_lengths,
    finished_beams,
    last_tokens,
    lengths,
    done,
    BOS: tl.constexpr,
    BEAM: tl.constexpr,
    BK: tl.constexpr,
):
    i_b = tl.program_id(0)
    o_k = tl.arange(0, BK)
    o_at = i_b * BEAM + o_k
    mask = o_k < BEAM
    b_none = tl.full([BK], float("-inf"), dtype=tl.float32)
    b_zero = tl.zeros([BK], dtype=tl.int32)
    # one at first, so that the first step does not pick the same token `beam` times
    tl.store(alive + o_at, tl.where(o_k == 0, 0.0, b_none), mask=mask)
    tl.store(finished + o_at, b_none, mask=mask)
    tl.store(finished_log_probs + o_at, b_none, mask=mask)
    tl.store(finished_lengths + o_at, b_zero, mask=mask)
    tl.store(finished_beams + o_at, b_zero, mask=mask)
    tl.store(last_tokens + o_at, b_zero + BOS, mask=mask)
    tl.store(lengths + i_b, 0)
    tl.store(done + i_b, 0)


def advance(
    state: Hypotheses,
    log_probs: Tensor,
    tokens: Tensor,
    active: Tensor,
    limits: Tensor,
    capacity: Tensor,
    penalties: Tensor,
    *,
    sentences: int,
    vocabulary: int,
    eos: int,
    in_chain: bool = False,
) -> None:
    """Continue every sentence's hypotheses by the candidates of its rows [R, count]; finish those that end.

    `sentences` is A. penalties[n] is what the log-probability of n tokens, </s> included, is divided by. In a chain
    (see early_launch.py) no other kernel writes the state, so it is read before the kernel in front has ended.
    """
    beam, count = state.alive.size(1), tokens.size(1)
    advance_kernel[(sentences,)](
        log_probs,
        tokens,
        active,
        limits,
        capacity,
        penalties,
        state.alive,
        state.finished,
        state.finished_log_probs,
        state.finished_lengths,
        state.finished_beams,
        state.last_tokens,
        state.lengths,
        state.done,
        state.beam_bits,
        state.tokens,
        state.parents,
        V=vocabulary,
        EOS=eos,
        BEAM=beam,
        BK=power_of_2(beam),
        COUNT=count,
        BN=power_of_2(beam * count),
        BP=power_of_2(beam + count),
        BS=256,
        num_warps=2,
        **early(in_chain, log_probs),
    )


@triton.jit
def advance_kernel(
    log_probs,
    tokens,
    active,
    limits,
    capacity,
    penalties,
    alive,
    finished,
    finished_log_probs,
    finished_lengths,
    finished_beams,
    last_tokens,
    lengths,
    done,
    beam_bits,
    entry_tokens,
    entry_parents,
    V: tl.constexpr,
    EOS: tl.constexpr,
    BEAM: tl.constexpr,
    BK: tl.constexpr,
    COUNT: tl.constexpr,
    BN: tl.constexpr,
    BP: tl.constexpr,
    BS: tl.constexpr,
    EARLY: tl.constexpr,
):
    i_a = tl.program_id(0)
    i_b = tl.load(active + i_a)
    m_active = i_b >= 0
    stride = tl.load(capacity)
    length = tl.load(lengths + i_b, mask=m_active, other=0)
    if tl.load(done + i_b, mask=m_active, other=1) != 0:
        wait_for_results(EARLY)
        return
    penalty = tl.load(penalties + length + 1)
    last_penalty = tl.load(penalties + tl.load(limits + i_b) + 1)
    o_n = tl.arange(0, BN)
    m_n = o_n < BEAM * COUNT
    b_from = o_n // COUNT
    b_total = tl.load(alive + i_b * BEAM + b_from, mask=m_n, other=float("-inf"))
    # a pool of the finished hypotheses, then the candidates that end here; those alive are kept apart
    o_k = tl.arange(0, BK)
    o_p = tl.arange(0, BP)
    m_old = o_p < BEAM
    o_old = i_b * BEAM + o_p
    b_score = tl.load(finished + o_old, mask=m_old, other=float("-inf"))
    b_log_prob = tl.load(finished_log_probs + o_old, mask=m_old, other=float("-inf"))
    b_length = tl.load(finished_lengths + o_old, mask=m_old, other=0)
    b_beam = tl.load(finished_beams + o_old, mask=m_old, other=0)
    b_alive = tl.full([BK], float("-inf"), dtype=tl.float32)
    b_parent = tl.zeros([BK], dtype=tl.int32)
    b_last = tl.zeros([BK], dtype=tl.int32)
    wait_for_results(EARLY)
    b_token = tl.load(tokens + i_a * BEAM * COUNT + o_n, mask=m_n, other=NO_INDEX)
    b_total += tl.load(log_probs + i_a * BEAM * COUNT + o_n, mask=m_n, other=float("-inf"))
    # ties between beams go as in a flat list of beam · V candidates
    b_keys = tl.where(b_token == NO_INDEX, EMPTY, sort_key(b_total, b_from * V + b_token))
    n_alive = 0
    for i in tl.static_range(COUNT):
        best = tl.max(b_keys, axis=0)
        b_keys = tl.where(b_keys == best, EMPTY, b_keys)
        total = value_of(best)
        index = index_of(best)
        index = tl.where(index == NO_INDEX, 0, index)
        parent = index // V
        token = index % V
        ends = token == EOS
        m_here = (o_p == BEAM + i) & ends
        b_score = tl.where(m_here, tl.math.div_rn(total, penalty), b_score)
        b_log_prob = tl.where(m_here, total, b_log_prob)
        b_length = tl.where(m_here, length, b_length)
        b_beam = tl.where(m_here, parent, b_beam)
        m_alive = (o_k == n_alive) & (token != EOS)
        b_alive = tl.where(m_alive, total, b_alive)
        b_parent = tl.where(m_alive, parent, b_parent)
        b_last = tl.where(m_alive, token, b_last)
        n_alive += tl.where(ends, 0, 1)
    # the rank of each in the pool: how many are better, or equal and before it
    m_better = (b_score[None, :] > b_score[:, None]) | (
        (b_score[None, :] == b_score[:, None]) & (o_p[None, :] < o_p[:, None])
    )
    b_rank = tl.sum(m_better.to(tl.int32), axis=1)
    m_kept = b_rank < BEAM
    o_kept = i_b * BEAM + b_rank
    worst = tl.max(tl.where(b_rank == BEAM - 1, b_score, float("-inf")), axis=0)
    # all threads have read the old state before any writes
    tl.debug_barrier()
    tl.store(finished + o_kept, b_score, mask=m_kept)
    tl.store(finished_log_probs + o_kept, b_log_prob, mask=m_kept)
    tl.store(finished_lengths + o_kept, b_length, mask=m_kept)
    tl.store(finished_beams + o_kept, b_beam, mask=m_kept)
    m_k = o_k < BEAM
    tl.store(alive + i_b * BEAM + o_k, b_alive, mask=m_k)
    tl.store(last_tokens + i_b * BEAM + o_k, b_last, mask=m_k)
    first = i_b.to(tl.int64) * stride
    o_entry = (first + length) * BEAM + o_k
    tl.store(entry_tokens + o_entry, b_last, mask=m_k)
    tl.store(entry_parents + o_entry, b_parent.to(tl.int8), mask=m_k)
    # a hypothesis has its parent's prefix, and the position that the parent has just computed belongs to it
    o_s = tl.arange(0, BS)
    p_bits = beam_bits + first * BEAM
    for i_s in range(0, (length + 1) * BEAM, BS):
        o_at = i_s + o_s
        b_old = tl.load(p_bits + o_at, mask=o_at < length * BEAM, other=0)
        b_old = tl.where(o_at < length * BEAM, b_old, 1 << (o_at % BEAM))
        b_bits = ((b_old[None, :] >> b_parent[:, None]) & 1) << o_k[:, None]
        b_new = tl.sum(tl.where(m_k[:, None], b_bits, 0), axis=0)
        tl.store(p_bits + o_at, b_new, mask=o_at < (length + 1) * BEAM)
    best_alive = tl.max(tl.where(o_k == 0, b_alive, float("-inf")), axis=0)
    bound = tl.math.div_rn(best_alive, last_penalty)
    tl.store(done + i_b, ((worst >= bound) | (best_alive == float("-inf"))).to(tl.int32))
    tl.store(lengths + i_b, length + 1)


def read_back(state: Hypotheses, capacity: Tensor, out: Tensor, entries: Tensor | None = None) -> None:
    """Write the best finished hypotheses of the first sentences, out int32 [sentences, nbest, 3 + longest].

    A row is the bits of its score and of its log-probability, its length, and its tokens. `entries` int32
    [sentences, nbest, longest + 1], unless None, are those of the positions and beams that computed the tokens and
    </s>; what is beyond </s> stays as it is.
    """
    (sentences, nbest, width), beam = out.shape, state.alive.size(1)
    read_back_kernel[(sentences, nbest)](
        state.finished,
        state.finished_log_probs,
        state.finished_lengths,
        state.finished_beams,
        state.tokens,
        state.parents,
        capacity,
        out,
        entries,
        width,
        BEAM=beam,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["width"])
def read_back_kernel(
    finished,
    finished_log_probs,
    finished_lengths,
    finished_beams,
    entry_tokens,
    entry_parents,
    capacity,
    out,
    entries,
    width,
    BEAM: tl.constexpr,
):
    i_b = tl.program_id(0)
    i_k = tl.program_id(1)
    at = i_b * BEAM + i_k
    out += (i_b * tl.num_programs(1) + i_k) * width
    score = tl.load(finished + at)
    length = tl.load(finished_lengths + at)
    beam = tl.load(finished_beams + at)
    tl.store(out, score.to(tl.int32, bitcast=True))
    tl.store(out + 1, tl.load(finished_log_probs + at).to(tl.int32, bitcast=True))
    tl.store(out + 2, length)
    if score == float("-inf"):
        return
    first = i_b.to(tl.int64) * tl.load(capacity)
    if entries is not None:
        entries += (i_b * tl.num_programs(1) + i_k) * (width - 2)
        tl.store(entries + length, ((first + length) * BEAM + beam).to(tl.int32))
    for i in range(length):
        position = length - 1 - i
        entry = (first + position) * BEAM + beam
        tl.store(out + 3 + position, tl.load(entry_tokens + entry))
        beam = tl.load(entry_parents + entry).to(tl.int32)
        if entries is not None:
            tl.store(entries + position, ((first + position) * BEAM + beam).to(tl.int32))
