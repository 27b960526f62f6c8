"""A step of beam search on the device: rela.decoding.beam.Search, one program a sentence.

Nothing is moved when hypotheses are reordered: bits of each slot say in whose past it is, and the tokens of a hypothesis
are found at the end by following parents backwards. A sentence lives at a place; `places` says which take part in a
step, so that those that are done leave the batch by a new list of places.

Legend: P places, `room` positions of each; a slot is one position of one beam, slot (p, i) of a place is
(place · room + p) · beam + i.
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
    """The living and finished hypotheses of every place, and the history they are read from."""

    alive: Tensor
    """float32 [P, beam]: log-probabilities, best first."""
    finished: Tensor
    """float32 [P, beam]: scores, best first; -inf where there is none."""
    finished_log_probs: Tensor
    finished_lengths: Tensor
    """int32 [P, beam]: tokens, </s> not counted."""
    finished_rows: Tensor
    """int32 [P, beam]: the beam that the last token was in."""
    last: Tensor
    """int32 [P, beam]: the token each living hypothesis ends in."""
    lengths: Tensor
    """int32 [P]: tokens decoded so far."""
    done: Tensor
    """int32 [P]: 1 when no living hypothesis can be better than the worst finished one."""
    heirs: Tensor
    """int32 [slots]: the living hypotheses that have a slot in their past, bit i for beam i."""
    tokens: Tensor
    """int32 [slots]."""
    parents: Tensor
    """int8 [slots]: the beam that each hypothesis was in one token before."""


def begin(state: Hypotheses, places: int, bos: int) -> None:
    """One living hypothesis with no token at each of the first places."""
    beam = state.alive.size(1)
    begin_kernel[(places,)](
        state.alive, state.finished, state.finished_log_probs, state.finished_lengths, state.finished_rows, state.last,
        state.lengths, state.done, BOS=bos, BEAM=beam, BB=power_of_2(beam), num_warps=1,
    )  # fmt: skip


@triton.jit
def begin_kernel(
    alive, finished, finished_log_probs, finished_lengths, finished_rows, last, lengths, done,
    BOS: tl.constexpr, BEAM: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    i_place = tl.program_id(0)
    o_b = tl.arange(0, BB)
    o_at = i_place * BEAM + o_b
    mask = o_b < BEAM
    b_none = tl.full([BB], float("-inf"), dtype=tl.float32)
    b_zero = tl.zeros([BB], dtype=tl.int32)
    # one at first, so that the first step does not pick the same token `beam` times
    tl.store(alive + o_at, tl.where(o_b == 0, 0.0, b_none), mask=mask)
    tl.store(finished + o_at, b_none, mask=mask)
    tl.store(finished_log_probs + o_at, b_none, mask=mask)
    tl.store(finished_lengths + o_at, b_zero, mask=mask)
    tl.store(finished_rows + o_at, b_zero, mask=mask)
    tl.store(last + o_at, b_zero + BOS, mask=mask)
    tl.store(lengths + i_place, 0)
    tl.store(done + i_place, 0)


def advance(
    state: Hypotheses, log_probs: Tensor, tokens: Tensor, places: Tensor, limits: Tensor, room: Tensor,
    penalties: Tensor, *, sentences: int, vocabulary: int, eos: int, in_chain: bool = False,
) -> None:  # fmt: skip
    """Take the candidates of each row [R, count]: keep the best, finish those that end, and see who is done.

    penalties[n] is what the log-probability of n tokens, </s> included, is divided by. In a chain (see early_launch.py) nobody
    else writes the state, so that it is read ahead.
    """
    beam, count = state.alive.size(1), tokens.size(1)
    advance_kernel[(sentences,)](
        log_probs, tokens, places, limits, room, penalties, state.alive, state.finished, state.finished_log_probs,
        state.finished_lengths, state.finished_rows, state.last, state.lengths, state.done, state.heirs,
        state.tokens, state.parents, V=vocabulary, EOS=eos, BEAM=beam, BB=power_of_2(beam), COUNT=count,
        BN=power_of_2(beam * count), BP=power_of_2(beam + count), BS=256, num_warps=2, **early(in_chain, log_probs),
    )  # fmt: skip


@triton.jit
def advance_kernel(
    log_probs, tokens, places, limits, room, penalties, alive, finished, finished_log_probs, finished_lengths,
    finished_rows, last, lengths, done, heirs, slot_tokens, slot_parents, V: tl.constexpr, EOS: tl.constexpr,
    BEAM: tl.constexpr, BB: tl.constexpr, COUNT: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0)
    i_place = tl.load(places + i_b)
    m_place = i_place >= 0
    stride = tl.load(room)
    length = tl.load(lengths + i_place, mask=m_place, other=0)
    if tl.load(done + i_place, mask=m_place, other=1) != 0:
        wait_for_results(EARLY)
        return
    penalty = tl.load(penalties + length + 1)
    last_penalty = tl.load(penalties + tl.load(limits + i_place) + 1)
    o_n = tl.arange(0, BN)
    m_n = o_n < BEAM * COUNT
    b_from = o_n // COUNT
    b_total = tl.load(alive + i_place * BEAM + b_from, mask=m_n, other=float("-inf"))
    # a pool of the finished ones, then the candidates that end here; the living ones apart
    o_b = tl.arange(0, BB)
    o_p = tl.arange(0, BP)
    m_old = o_p < BEAM
    o_old = i_place * BEAM + o_p
    b_score = tl.load(finished + o_old, mask=m_old, other=float("-inf"))
    b_log_prob = tl.load(finished_log_probs + o_old, mask=m_old, other=float("-inf"))
    b_length = tl.load(finished_lengths + o_old, mask=m_old, other=0)
    b_row = tl.load(finished_rows + o_old, mask=m_old, other=0)
    b_alive = tl.full([BB], float("-inf"), dtype=tl.float32)
    b_parent = tl.zeros([BB], dtype=tl.int32)
    b_last = tl.zeros([BB], dtype=tl.int32)
    wait_for_results(EARLY)
    b_token = tl.load(tokens + i_b * BEAM * COUNT + o_n, mask=m_n, other=NO_INDEX)
    b_total += tl.load(log_probs + i_b * BEAM * COUNT + o_n, mask=m_n, other=float("-inf"))
    # ties between beams go as in a flat list of beam · V candidates
    b_keys = tl.where(b_token == NO_INDEX, EMPTY, sort_key(b_total, b_from * V + b_token))
    living = 0
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
        b_row = tl.where(m_here, parent, b_row)
        m_lives = (o_b == living) & (token != EOS)
        b_alive = tl.where(m_lives, total, b_alive)
        b_parent = tl.where(m_lives, parent, b_parent)
        b_last = tl.where(m_lives, token, b_last)
        living += tl.where(ends, 0, 1)
    # the rank of each in the pool: how many are better, or equal and before it
    m_better = (b_score[None, :] > b_score[:, None]) | (
        (b_score[None, :] == b_score[:, None]) & (o_p[None, :] < o_p[:, None])
    )
    b_rank = tl.sum(m_better.to(tl.int32), axis=1)
    m_kept = b_rank < BEAM
    o_kept = i_place * BEAM + b_rank
    worst = tl.max(tl.where(b_rank == BEAM - 1, b_score, float("-inf")), axis=0)
    # what is read of the old state has been read by all threads before any writes
    tl.debug_barrier()
    tl.store(finished + o_kept, b_score, mask=m_kept)
    tl.store(finished_log_probs + o_kept, b_log_prob, mask=m_kept)
    tl.store(finished_lengths + o_kept, b_length, mask=m_kept)
    tl.store(finished_rows + o_kept, b_row, mask=m_kept)
    m_b = o_b < BEAM
    tl.store(alive + i_place * BEAM + o_b, b_alive, mask=m_b)
    tl.store(last + i_place * BEAM + o_b, b_last, mask=m_b)
    first = i_place.to(tl.int64) * stride
    o_slot = (first + length) * BEAM + o_b
    tl.store(slot_tokens + o_slot, b_last, mask=m_b)
    tl.store(slot_parents + o_slot, b_parent.to(tl.int8), mask=m_b)
    # a hypothesis has its parent's past, of which this position, computed by the parent, is now part
    o_s = tl.arange(0, BS)
    p_heirs = heirs + first * BEAM
    for i_s in range(0, (length + 1) * BEAM, BS):
        o_at = i_s + o_s
        b_old = tl.load(p_heirs + o_at, mask=o_at < length * BEAM, other=0)
        b_old = tl.where(o_at < length * BEAM, b_old, 1 << (o_at % BEAM))
        b_bits = ((b_old[None, :] >> b_parent[:, None]) & 1) << o_b[:, None]
        b_new = tl.sum(tl.where(m_b[:, None], b_bits, 0), axis=0)
        tl.store(p_heirs + o_at, b_new, mask=o_at < (length + 1) * BEAM)
    best_alive = tl.max(tl.where(o_b == 0, b_alive, float("-inf")), axis=0)
    bound = tl.math.div_rn(best_alive, last_penalty)
    tl.store(done + i_place, ((worst >= bound) | (best_alive == float("-inf"))).to(tl.int32))
    tl.store(lengths + i_place, length + 1)


def read_back(state: Hypotheses, room: Tensor, out: Tensor, *, places: int) -> None:
    """The best finished hypotheses in one tensor, out int32 [places, nbest, 3 + L], where L is not below the longest of them.

    A row holds the bits of its score and of its log-probability, its length, and its tokens.
    """
    beam, nbest = state.alive.size(1), out.size(1)
    read_back_kernel[(places, nbest)](
        state.finished, state.finished_log_probs, state.finished_lengths, state.finished_rows, state.tokens, state.parents,
        room, out, out.size(2), BEAM=beam, num_warps=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["width"])
def read_back_kernel(
    finished, finished_log_probs, finished_lengths, finished_rows, slot_tokens, slot_parents, room, out, width,
    BEAM: tl.constexpr,
):  # fmt: skip
    i_place = tl.program_id(0)
    i_b = tl.program_id(1)
    at = i_place * BEAM + i_b
    out += (i_place * tl.num_programs(1) + i_b) * width
    score = tl.load(finished + at)
    length = tl.load(finished_lengths + at)
    row = tl.load(finished_rows + at)
    tl.store(out, score.to(tl.int32, bitcast=True))
    tl.store(out + 1, tl.load(finished_log_probs + at).to(tl.int32, bitcast=True))
    tl.store(out + 2, length)
    if score == float("-inf"):
        return
    first = i_place.to(tl.int64) * tl.load(room)
    for i in range(length):
        position = length - 1 - i
        slot = (first + position) * BEAM + row
        tl.store(out + 3 + position, tl.load(slot_tokens + slot))
        row = tl.load(slot_parents + slot).to(tl.int32)
