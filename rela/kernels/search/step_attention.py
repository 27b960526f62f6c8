"""Attention while decoding: one new position against a cache that beams share, and rows of a sentence against its keys.

A beam's past is scattered over the slots of its sentence, and each slot has bits that say which beams are its heirs. The
cache is never reordered. A program takes all beams of a sentence and head at once, multiplies them with every slot, and
hides from each beam the slots that it is no heir of: reading is in order, and the product is one for tensor cores.

The norm on the merged heads (equations 4 and 5 of arXiv 2104.07012) costs no pass of its own: the gate acts on one
element, so it is applied here; the gain is part of W_o; and 1/RMS, one number a row, commutes with W_o, so that a later
kernel applies it. What it needs are squares, summed here over GROUP neighbours, as far as a warp goes without the others.

Legend: R rows, H heads, D head size, S keys, G groups of a head; a slot is one position of one beam in the cache.
"""

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import PRECISION, ceil_div, power_of_2
from rela.kernels.attention.scores import activate, seen_weights
from rela.kernels.early_launch import early, let_next_start, wait_for_results

SLOTS = 128  # of one block of the cache
KEYS = 64  # of one block of a sentence
# From so many sentences on it is traffic that costs, and slots in nobody's past are not loaded; below it is latency.
CROWD = 8
GROUP = 8  # columns of a tensor core's tile


def groups_of(size: int) -> int:
    """How many sums of squares a head of this size leaves in each row."""
    return ceil_div(size, GROUP)


def attend_cache(
    qkv: Tensor, keys: Tensor, values: Tensor, heirs: Tensor, places: Tensor, lengths: Tensor, done: Tensor,
    room: Tensor, gate: Tensor | None, threshold: Tensor | None, context: Tensor, squares: Tensor | None, *,
    beam: int, heads: int, activation: str, in_chain: bool = False,
) -> None:  # fmt: skip
    """One more position of R rows: qkv [R, 3 · H · D] joins the cache, context [R, H · D] and, if wanted, squares [R, H · G] come out.

    Row r is beam r % beam of the sentence at places[r // beam]; a place below zero is an empty seat, and a sentence that is
    `done` is left alone. A place owns `room` positions of `beam` slots each in keys and values [slots, H · D] and heirs
    [slots], of which `lengths` [places] positions are filled; bit i of a slot's heirs says that beam i has it in its past.
    All of these but the new position are written before a chain begins (`in_chain`, see early_launch.py).
    """
    rows, width = context.shape
    size, sentences = width // heads, rows // beam
    self_attention_kernel[(sentences, heads)](
        qkv, keys, values, heirs, places, lengths, done, room, gate, threshold, context, squares, size**-0.5,
        BEAM=beam, BB=max(16, power_of_2(beam)), H=heads, D=size, BD=max(16, power_of_2(size)), BS=SLOTS,
        GROUP=GROUP, ACTIVATION=activation, SPARSE=sentences >= CROWD, PRECISION=PRECISION, num_warps=4, num_stages=1,
        **early(in_chain, qkv),
    )  # fmt: skip


@triton.jit
def self_attention_kernel(
    qkv, keys, values, heirs, places, lengths, done, room, gate, threshold, context, squares, scale,
    BEAM: tl.constexpr, BB: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BS: tl.constexpr,
    GROUP: tl.constexpr, ACTIVATION: tl.constexpr, SPARSE: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    i_seat = tl.program_id(0)
    i_h = tl.program_id(1)
    C: tl.constexpr = H * D
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    b_gate, theta = load_head(gate, threshold, i_h, o_d, D)
    i_place = tl.load(places + i_seat)
    stride = tl.load(room)
    m_place = i_place >= 0
    length = tl.load(lengths + i_place, mask=m_place, other=0)
    if tl.load(done + i_place, mask=m_place, other=1) != 0:
        wait_for_results(EARLY)
        return
    first = i_place.to(tl.int64) * stride * BEAM
    heirs += first
    keys += first * C + i_h * D
    values += first * C + i_h * D
    n_slots = length * BEAM
    b_k, b_v, m_seen = load_slots(keys, values, heirs, 0, n_slots, m_d, BB, C, BS, BD, SPARSE)
    wait_for_results(EARLY)
    # [BB, BD]: the new position, of which every beam sees its own
    o_b = tl.arange(0, BB)
    m_row = (o_b < BEAM)[:, None] & m_d[None, :]
    o_row = i_seat * BEAM + o_b
    p_qkv = qkv + o_row[:, None] * 3 * C + i_h * D + o_d[None, :]
    b_q = tl.load(p_qkv, mask=m_row, other=0.0)
    b_new_k = tl.load(p_qkv + C, mask=m_row, other=0.0)
    b_new_v = tl.load(p_qkv + 2 * C, mask=m_row, other=0.0)
    o_new = (n_slots + o_b)[:, None].to(tl.int64) * C + o_d[None, :]
    tl.store(keys + o_new, b_new_k, mask=m_row)
    tl.store(values + o_new, b_new_v, mask=m_row)
    b_score = tl.sum(b_q.to(tl.float32) * b_new_k.to(tl.float32), axis=1) * scale - theta
    b_total = tl.full([BB], 1.0, dtype=tl.float32)
    if ACTIVATION == "softmax":
        b_out = b_new_v.to(tl.float32)
    else:
        b_out = activate(b_score, ACTIVATION)[:, None] * b_new_v.to(tl.float32)
    b_out, b_score, b_total = attend_block(
        b_q, b_k, b_v, m_seen, b_out, b_score, b_total, scale, theta, ACTIVATION, PRECISION
    )
    for i_s in range(BS, n_slots, BS):
        b_k, b_v, m_seen = load_slots(keys, values, heirs, i_s, n_slots, m_d, BB, C, BS, BD, SPARSE)
        b_out, b_score, b_total = attend_block(
            b_q, b_k, b_v, m_seen, b_out, b_score, b_total, scale, theta, ACTIVATION, PRECISION
        )
    store_context(
        context, squares, b_out, b_total, gate, b_gate, i_seat * BEAM, BEAM, i_h, o_d, BEAM, H, D, GROUP, ACTIVATION
    )


@triton.jit
def load_slots(
    keys, values, heirs, start, n_slots, m_d, BB: tl.constexpr, C: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
    SPARSE: tl.constexpr,
):  # fmt: skip
    """Keys [BD, BS] and values [BS, BD] of a block of slots, and which of them each beam sees [BB, BS]."""
    o_slot = start + tl.arange(0, BS)
    m_slot = o_slot < n_slots
    b_heirs = tl.load(heirs + o_slot, mask=m_slot, other=0)
    m_seen = (b_heirs[None, :] >> tl.arange(0, BB)[:, None]) & 1 != 0
    if SPARSE:
        m_slot = b_heirs != 0
    o_row = o_slot.to(tl.int64) * C
    o_d = tl.arange(0, BD)
    b_k = tl.load(keys + o_row[None, :] + o_d[:, None], mask=m_slot[None, :] & m_d[:, None], other=0.0)
    b_v = tl.load(values + o_row[:, None] + o_d[None, :], mask=m_slot[:, None] & m_d[None, :], other=0.0)
    return b_k, b_v, m_seen


def attend_blocks(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, gate: Tensor | None, threshold: Tensor | None,
    context: Tensor, squares: Tensor | None, *, blocks: int, queries: int, heads: int, activation: str, in_chain: bool = False,
) -> None:  # fmt: skip
    """Blocks of queries of a sentence against all its keys: q [N, H · D], keys and values [M, H · D], of any row strides.

    table [blocks, 4] (int32) holds first query, their number (at most `queries`, 0 for an empty block), first key and
    number of keys of each block. Context [N, H · D] and, if wanted, squares [N, H · G] come out; rows in no block stay as they are.
    `in_chain` (see early_launch.py) may be said only where table, keys and values were written before the chain began.
    """
    width = context.shape[-1]
    size = width // heads
    block_attention_kernel[(blocks, heads)](
        q, keys, values, table, gate, threshold, context, squares, size**-0.5, q.stride(0), keys.stride(0),
        values.stride(0), QUERIES=queries, H=heads, D=size, BD=max(16, power_of_2(size)),
        BQ=max(16, power_of_2(queries)), BS=KEYS, GROUP=GROUP, ACTIVATION=activation, PRECISION=PRECISION, num_warps=4,
        num_stages=1, **early(in_chain, q),
    )  # fmt: skip


@triton.jit
def block_attention_kernel(
    q, keys, values, table, gate, threshold, context, squares, scale, stride_q, stride_k, stride_v,
    QUERIES: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BQ: tl.constexpr, BS: tl.constexpr,
    GROUP: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    let_next_start(EARLY)
    i_block = tl.program_id(0)
    i_h = tl.program_id(1)
    first_q = tl.load(table + i_block * 4)
    n_q = tl.load(table + i_block * 4 + 1)
    first_k = tl.load(table + i_block * 4 + 2)
    n_k = tl.load(table + i_block * 4 + 3)
    if n_q == 0:
        wait_for_results(EARLY)
        return
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    o_q = tl.arange(0, BQ)
    b_gate, theta = load_head(gate, threshold, i_h, o_d, D)
    keys += first_k.to(tl.int64) * stride_k + i_h * D
    values += first_k.to(tl.int64) * stride_v + i_h * D
    b_k, b_v, m_seen = load_keys(keys, values, 0, n_k, stride_k, stride_v, m_d, BS, BD)
    wait_for_results(EARLY)
    # [BQ, BD]
    o_row = (first_q + o_q).to(tl.int64)
    m_q = (o_q < n_q)[:, None] & m_d[None, :]
    b_q = tl.load(q + o_row[:, None] * stride_q + i_h * D + o_d[None, :], mask=m_q, other=0.0)
    b_out = tl.zeros([BQ, BD], dtype=tl.float32)
    b_highest = tl.full([BQ], float("-inf"), dtype=tl.float32)
    b_total = tl.zeros([BQ], dtype=tl.float32)
    b_out, b_highest, b_total = attend_block(
        b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION, PRECISION
    )
    for i_s in range(BS, n_k, BS):
        b_k, b_v, m_seen = load_keys(keys, values, i_s, n_k, stride_k, stride_v, m_d, BS, BD)
        b_out, b_highest, b_total = attend_block(
            b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION, PRECISION
        )
    store_context(
        context, squares, b_out, b_total, gate, b_gate, first_q, n_q, i_h, o_d, QUERIES, H, D, GROUP, ACTIVATION
    )


@triton.jit
def load_keys(keys, values, start, n_k, stride_k, stride_v, m_d, BS: tl.constexpr, BD: tl.constexpr):
    """A block of keys [BD, BS] and values [BS, BD], and which of them are there [1, BS]."""
    o_s = start + tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    m_s = o_s < n_k
    o_row = o_s.to(tl.int64)
    b_k = tl.load(keys + o_row[None, :] * stride_k + o_d[:, None], mask=m_s[None, :] & m_d[:, None], other=0.0)
    b_v = tl.load(values + o_row[:, None] * stride_v + o_d[None, :], mask=m_s[:, None] & m_d[None, :], other=0.0)
    return b_k, b_v, m_s[None, :]


@triton.jit
def load_head(gate, threshold, i_h, o_d, D: tl.constexpr):
    """The gate's elements [BD] and the threshold of a head; asked for early, as they are seldom in a cache."""
    b_gate = tl.zeros(o_d.shape, dtype=tl.float32)
    theta = 0.0
    if gate is not None:
        # as the exponent of 2 that its sigmoid wants
        b_gate = tl.load(gate + i_h * D + o_d, mask=o_d < D, other=0.0) * -1.4426950408889634
    if threshold is not None:
        theta = tl.load(threshold + i_h)
    return b_gate, theta


@triton.jit
def attend_block(
    b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr
):
    """Add what a block of keys [BD, BS] and values [BS, BD] gives to queries [BQ, BD]; softmax keeps its highest score and its sum."""
    # [BQ, BS]
    b_score = tl.dot(b_q, b_k, input_precision=PRECISION) * scale - theta
    if ACTIVATION == "softmax":
        b_score = tl.where(m_seen, b_score, float("-inf"))
        b_new = tl.maximum(b_highest, tl.max(b_score, axis=1))
        b_w = tl.exp(b_score - b_new[:, None])
        b_shrink = tl.exp(b_highest - b_new)
        b_total = b_total * b_shrink + tl.sum(b_w, axis=1)
        b_out *= b_shrink[:, None]
        b_highest = b_new
    else:
        b_w = seen_weights(b_score, m_seen, ACTIVATION, RECTIFIES=False)
    return tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION), b_highest, b_total


@triton.jit
def store_context(
    context, squares, b_out, b_total, gate, b_gate, first, rows, i_h, o_d, MOST: tl.constexpr, H: tl.constexpr,
    D: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """The context [BQ, BD] of `rows` rows, at most MOST, behind its gate and, where a norm follows, sums of the squares before it."""
    if ACTIVATION == "softmax":
        b_out /= b_total[:, None]
    if b_out.shape[0] >= 2 * MOST:
        # a product wants 16 rows; what follows does not, and a thread holds rows of both halves
        b_halves = tl.reshape(b_out, [2, b_out.shape[0] // 2, b_out.shape[1]])
        b_out, _ = tl.split(tl.permute(b_halves, [1, 2, 0]))
    BQ: tl.constexpr = b_out.shape[0]
    o_q = tl.arange(0, BQ)
    o_row = (first + o_q).to(tl.int64)
    m_row = o_q < rows
    b_gated = b_out
    if gate is not None:
        b_gated = b_out / (1.0 + tl.exp2(b_gate[None, :] * b_out))
    p_out = context + o_row[:, None] * (H * D) + i_h * D + o_d[None, :]
    tl.store(p_out, b_gated.to(context.dtype.element_ty), mask=m_row[:, None] & (o_d < D)[None, :])
    if squares is not None:
        G: tl.constexpr = (D + GROUP - 1) // GROUP
        BG: tl.constexpr = o_d.shape[0] // GROUP
        o_g = tl.arange(0, BG)[None, :]
        b_squares = tl.sum(tl.reshape(b_out * b_out, [BQ, BG, GROUP]), axis=2)
        tl.store(squares + o_row[:, None] * (H * G) + i_h * G + o_g, b_squares, mask=m_row[:, None] & (o_g < G))
