"""Attention while decoding: one new position against a cache that beams share, and rows of a sentence against its keys.

The prefix of a beam is scattered over the cache entries of its sentence, and the bits of an entry say which beams have
it in their prefix. The cache is never reordered. A program takes all beams of a sentence and head at once, multiplies
them with every entry, and masks for each beam the entries outside its prefix: reading is in order, and the product is
one for tensor cores.

The norm on the merged heads (equations 4 and 5 of arXiv 2104.07012) costs no pass of its own. The gate acts on one
element, so it is applied here; the gain is part of W_o; and 1/RMS, one number a row, commutes with W_o, so a later
kernel applies it. That kernel needs squares: they are summed here over GROUP neighbours, which one warp can do alone.

Letters beside those of `rela.attention`: G groups of a head.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import PRECISION, ceil_div, power_of_2
from rela.kernels.attention.scores import activate, seen_weights
from rela.kernels.early_launch import early, let_next_start, wait_for_results

ENTRIES = 128  # of the cache, in one block
KEYS = 64  # of a source, in one block
# From so many sentences on, memory traffic costs most, and entries in no beam's prefix are not loaded.
SKIP_UNUSED_FROM = 8
GROUP = 8  # columns of a tensor core's tile


@dataclass(frozen=True)
class Heads:
    """The heads of an attention: how many, their activation, and what acts on each of them."""

    count: int
    activation: str
    gate: Tensor | None = None
    """float32 [C]."""
    threshold: Tensor | None = None
    """float32 [H]."""


@dataclass(frozen=True)
class BeamCache:
    """The keys and values of one layer, `capacity` positions of `beam` entries for each sentence."""

    keys: Tensor
    """[entries, C]."""
    values: Tensor
    beam_bits: Tensor
    """int32 [entries]: bit k says that beam k has the entry in its prefix."""
    active: Tensor
    """int32 [A]: the sentence that rows a · beam … belong to, -1 for padding rows."""
    lengths: Tensor
    """int32 [B]: positions that are filled."""
    done: Tensor
    """int32 [B]: 1 for a sentence that is left as it is."""
    capacity: Tensor
    """int32 [1]."""
    beam: int


@dataclass(frozen=True)
class KeptQueries:
    """The queries of one layer's cross attention in every step of a search; the rest as in `BeamCache`."""

    queries: Tensor
    """[entries, C]: at the entry of a position and a beam, the query of the row that computed the position."""
    active: Tensor
    lengths: Tensor
    done: Tensor
    capacity: Tensor


def groups_of(size: int) -> int:
    """How many sums of squares a head of this size has in each row."""
    return ceil_div(size, GROUP)


def attend_cache(
    qkv: Tensor, cache: BeamCache, heads: Heads, context: Tensor, squares: Tensor | None, *, in_chain: bool = False
) -> None:
    """Write context [R, C] and, unless None, squares [R, H · G] of one more position of R rows, whose qkv is [R, 3C].

    Its keys and values join the cache. All of the cache but the new position must be written before a chain begins
    (`in_chain`, see early_launch.py).
    """
    rows, width = context.shape
    size, sentences = width // heads.count, rows // cache.beam
    self_attention_kernel[(sentences, heads.count)](
        qkv,
        cache.keys,
        cache.values,
        cache.beam_bits,
        cache.active,
        cache.lengths,
        cache.done,
        cache.capacity,
        heads.gate,
        heads.threshold,
        context,
        squares,
        size**-0.5,
        BEAM=cache.beam,
        BK=max(16, power_of_2(cache.beam)),
        H=heads.count,
        D=size,
        BD=max(16, power_of_2(size)),
        BS=ENTRIES,
        GROUP=GROUP,
        ACTIVATION=heads.activation,
        SKIP_UNUSED=sentences >= SKIP_UNUSED_FROM,
        PRECISION=PRECISION,
        num_warps=4,
        num_stages=1,
        **early(in_chain, qkv),
    )


@triton.jit
def self_attention_kernel(
    qkv,
    keys,
    values,
    beam_bits,
    active,
    lengths,
    done,
    capacity,
    gate,
    threshold,
    context,
    squares,
    scale,
    BEAM: tl.constexpr,
    BK: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BS: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SKIP_UNUSED: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_a = tl.program_id(0)
    i_h = tl.program_id(1)
    C: tl.constexpr = H * D
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    b_gate, theta = load_head(gate, threshold, i_h, o_d, D)
    i_b = tl.load(active + i_a)
    stride = tl.load(capacity)
    m_active = i_b >= 0
    length = tl.load(lengths + i_b, mask=m_active, other=0)
    if tl.load(done + i_b, mask=m_active, other=1) != 0:
        wait_for_results(EARLY)
        return
    first = i_b.to(tl.int64) * stride * BEAM
    beam_bits += first
    keys += first * C + i_h * D
    values += first * C + i_h * D
    n_entries = length * BEAM
    b_k, b_v, m_seen = load_entries(keys, values, beam_bits, 0, n_entries, m_d, BK, C, BS, BD, SKIP_UNUSED)
    wait_for_results(EARLY)
    # [BK, BD]: the new position; every beam sees its own
    o_k = tl.arange(0, BK)
    m_row = (o_k < BEAM)[:, None] & m_d[None, :]
    o_row = i_a * BEAM + o_k
    p_qkv = qkv + o_row[:, None] * 3 * C + i_h * D + o_d[None, :]
    b_q = tl.load(p_qkv, mask=m_row, other=0.0)
    b_new_k = tl.load(p_qkv + C, mask=m_row, other=0.0)
    b_new_v = tl.load(p_qkv + 2 * C, mask=m_row, other=0.0)
    o_new = (n_entries + o_k)[:, None].to(tl.int64) * C + o_d[None, :]
    tl.store(keys + o_new, b_new_k, mask=m_row)
    tl.store(values + o_new, b_new_v, mask=m_row)
    b_score = tl.sum(b_q.to(tl.float32) * b_new_k.to(tl.float32), axis=1) * scale - theta
    b_total = tl.full([BK], 1.0, dtype=tl.float32)
    if ACTIVATION == "softmax":
        b_out = b_new_v.to(tl.float32)
    else:
        b_out = activate(b_score, ACTIVATION)[:, None] * b_new_v.to(tl.float32)
    b_out, b_score, b_total = attend_block(
        b_q, b_k, b_v, m_seen, b_out, b_score, b_total, scale, theta, ACTIVATION, PRECISION
    )
    for i_s in range(BS, n_entries, BS):
        b_k, b_v, m_seen = load_entries(keys, values, beam_bits, i_s, n_entries, m_d, BK, C, BS, BD, SKIP_UNUSED)
        b_out, b_score, b_total = attend_block(
            b_q, b_k, b_v, m_seen, b_out, b_score, b_total, scale, theta, ACTIVATION, PRECISION
        )
    store_context(
        context, squares, b_out, b_total, gate, b_gate, i_a * BEAM, BEAM, i_h, o_d, BEAM, H, D, GROUP, ACTIVATION
    )


@triton.jit
def load_entries(
    keys,
    values,
    beam_bits,
    start,
    n_entries,
    m_d,
    BK: tl.constexpr,
    C: tl.constexpr,
    BS: tl.constexpr,
    BD: tl.constexpr,
    SKIP_UNUSED: tl.constexpr,
):
    """Keys [BD, BS] and values [BS, BD] of a block of entries, and which of them each beam sees [BK, BS]."""
    o_entry = start + tl.arange(0, BS)
    m_entry = o_entry < n_entries
    b_bits = tl.load(beam_bits + o_entry, mask=m_entry, other=0)
    m_seen = (b_bits[None, :] >> tl.arange(0, BK)[:, None]) & 1 != 0
    if SKIP_UNUSED:
        m_entry = b_bits != 0
    o_row = o_entry.to(tl.int64) * C
    o_d = tl.arange(0, BD)
    b_k = tl.load(keys + o_row[None, :] + o_d[:, None], mask=m_entry[None, :] & m_d[:, None], other=0.0)
    b_v = tl.load(values + o_row[:, None] + o_d[None, :], mask=m_entry[:, None] & m_d[None, :], other=0.0)
    return b_k, b_v, m_seen


def attend_blocks(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    heads: Heads,
    context: Tensor,
    squares: Tensor | None,
    *,
    blocks: int,
    queries: int,
    in_chain: bool = False,
    kept: KeptQueries | None = None,
) -> None:
    """Write context [N, C] and, unless None, squares [N, H · G] of blocks of queries to all keys of their sentence.

    q is [N, C], keys and values are [M, C], of any row strides. table [blocks, 4] (int32) holds first query, number of
    queries (at most `queries`, 0 for an empty block), first key and number of keys of each block; rows in no block stay
    as they are. `in_chain` (see early_launch.py) needs table, keys and values to be written before the chain begins.
    With `kept`, block a holds the beams of sentence active[a], and its queries join those that are kept.
    """
    size = context.shape[-1] // heads.count
    places = (None,) * 5 if kept is None else (kept.queries, kept.active, kept.lengths, kept.done, kept.capacity)
    block_attention_kernel[(blocks, heads.count)](
        q,
        keys,
        values,
        table,
        heads.gate,
        heads.threshold,
        context,
        squares,
        *places,
        size**-0.5,
        q.stride(0),
        keys.stride(0),
        values.stride(0),
        MOST_QUERIES=queries,
        H=heads.count,
        D=size,
        BD=max(16, power_of_2(size)),
        BT=max(16, power_of_2(queries)),
        BS=KEYS,
        GROUP=GROUP,
        ACTIVATION=heads.activation,
        PRECISION=PRECISION,
        num_warps=4,
        num_stages=1,
        **early(in_chain, q),
    )


@triton.jit
def block_attention_kernel(
    q,
    keys,
    values,
    table,
    gate,
    threshold,
    context,
    squares,
    kept,
    active,
    lengths,
    done,
    capacity,
    scale,
    stride_q,
    stride_k,
    stride_v,
    MOST_QUERIES: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
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
    o_t = tl.arange(0, BT)
    b_gate, theta = load_head(gate, threshold, i_h, o_d, D)
    keys += first_k.to(tl.int64) * stride_k + i_h * D
    values += first_k.to(tl.int64) * stride_v + i_h * D
    b_k, b_v, m_seen = load_keys(keys, values, 0, n_k, stride_k, stride_v, m_d, BS, BD)
    wait_for_results(EARLY)
    # [BT, BD]
    o_row = (first_q + o_t).to(tl.int64)
    m_t = (o_t < n_q)[:, None] & m_d[None, :]
    b_q = tl.load(q + o_row[:, None] * stride_q + i_h * D + o_d[None, :], mask=m_t, other=0.0)
    if kept is not None:
        i_b = tl.load(active + i_block)
        # a sentence that is done has no position left
        if tl.load(done + i_b) == 0:
            position = i_b.to(tl.int64) * tl.load(capacity) + tl.load(lengths + i_b)
            o_entry = position * MOST_QUERIES + o_t
            tl.store(kept + o_entry[:, None] * (H * D) + i_h * D + o_d[None, :], b_q, mask=m_t)
    b_out = tl.zeros([BT, BD], dtype=tl.float32)
    b_highest = tl.full([BT], float("-inf"), dtype=tl.float32)
    b_total = tl.zeros([BT], dtype=tl.float32)
    b_out, b_highest, b_total = attend_block(
        b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION, PRECISION
    )
    for i_s in range(BS, n_k, BS):
        b_k, b_v, m_seen = load_keys(keys, values, i_s, n_k, stride_k, stride_v, m_d, BS, BD)
        b_out, b_highest, b_total = attend_block(
            b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION, PRECISION
        )
    store_context(
        context, squares, b_out, b_total, gate, b_gate, first_q, n_q, i_h, o_d, MOST_QUERIES, H, D, GROUP, ACTIVATION
    )


@triton.jit
def load_keys(keys, values, start, n_k, stride_k, stride_v, m_d, BS: tl.constexpr, BD: tl.constexpr):
    """A block of keys [BD, BS] and values [BS, BD], and which of them exist [1, BS]."""
    o_s = start + tl.arange(0, BS)
    o_d = tl.arange(0, BD)
    m_s = o_s < n_k
    o_row = o_s.to(tl.int64)
    b_k = tl.load(keys + o_row[None, :] * stride_k + o_d[:, None], mask=m_s[None, :] & m_d[:, None], other=0.0)
    b_v = tl.load(values + o_row[:, None] * stride_v + o_d[None, :], mask=m_s[:, None] & m_d[None, :], other=0.0)
    return b_k, b_v, m_s[None, :]


@triton.jit
def load_head(gate, threshold, i_h, o_d, D: tl.constexpr):
    """The gate's elements [BD] and the threshold of a head; loaded early, as they are seldom in a cache."""
    b_gate = tl.zeros(o_d.shape, dtype=tl.float32)
    theta = 0.0
    if gate is not None:
        # times -1/ln 2, since the sigmoid is computed by exp2
        b_gate = tl.load(gate + i_h * D + o_d, mask=o_d < D, other=0.0) * -1.4426950408889634
    if threshold is not None:
        theta = tl.load(threshold + i_h)
    return b_gate, theta


@triton.jit
def attend_block(
    b_q, b_k, b_v, m_seen, b_out, b_highest, b_total, scale, theta, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr
):
    """The output [BT, BD] after a block of keys [BD, BS] and values [BS, BD]; softmax's running maximum and sum."""
    # [BT, BS]
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
    context,
    squares,
    b_out,
    b_total,
    gate,
    b_gate,
    first,
    rows,
    i_h,
    o_d,
    MOST_ROWS: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Store the gated context [BT, BD] of `rows` rows, at most MOST_ROWS; before a norm also ungated squares."""
    if ACTIVATION == "softmax":
        b_out /= b_total[:, None]
    if b_out.shape[0] >= 2 * MOST_ROWS:
        # tl.dot needs 16 rows; what follows does not, and a thread holds rows of both halves
        b_halves = tl.reshape(b_out, [2, b_out.shape[0] // 2, b_out.shape[1]])
        b_out, _ = tl.split(tl.permute(b_halves, [1, 2, 0]))
    BT: tl.constexpr = b_out.shape[0]
    o_t = tl.arange(0, BT)
    o_row = (first + o_t).to(tl.int64)
    m_row = o_t < rows
    b_gated = b_out
    if gate is not None:
        b_gated = b_out / (1.0 + tl.exp2(b_gate[None, :] * b_out))
    p_out = context + o_row[:, None] * (H * D) + i_h * D + o_d[None, :]
    tl.store(p_out, b_gated.to(context.dtype.element_ty), mask=m_row[:, None] & (o_d < D)[None, :])
    if squares is not None:
        G: tl.constexpr = (D + GROUP - 1) // GROUP
        BG: tl.constexpr = o_d.shape[0] // GROUP
        o_g = tl.arange(0, BG)[None, :]
        b_squares = tl.sum(tl.reshape(b_out * b_out, [BT, BG, GROUP]), axis=2)
        tl.store(squares + o_row[:, None] * (H * G) + i_h * G + o_g, b_squares, mask=m_row[:, None] & (o_g < G))
