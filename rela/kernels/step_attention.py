"""Attention while decoding: one new position against a cache that beams share, and rows of a sentence against its keys.

A beam's past is scattered over the rows of its sentence: position p of a row was computed by the row `ancestry[p]`.
The cache is never reordered; the kernel follows the ancestry instead, and writes the new key and value itself.

The norm on the merged heads (equations 4 and 5 of arXiv 2104.07012) costs no pass of its own: the gate acts on one
element, so it is applied here; the gain is part of W_o; and 1/RMS, one number a row, commutes with W_o, so that the next
kernel applies it from the squares summed here, one number a row and head.

Legend: R rows, H heads, D head size, S keys; a slot is one position of one row of the cache.
"""

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.early_launch import early, wait_for_results
from rela.kernels.problem import PRECISION, power_of_2
from rela.kernels.scores import activate

KEYS = 64  # of one block


def attend_cache(
    qkv: Tensor, keys: Tensor, values: Tensor, ancestry: Tensor, places: Tensor, lengths: Tensor, done: Tensor,
    room: Tensor, gate: Tensor | None, threshold: Tensor | None, context: Tensor, squares: Tensor, *,
    beam: int, heads: int, activation: str,
) -> None:  # fmt: skip
    """One more position of R rows: qkv [R, 3 · H · D] joins the cache, context [R, H · D] and squares [R, H] come out.

    Row r is beam r % beam of the sentence at places[r // beam]; a place below zero is an empty seat, and a sentence
    that is `done` is left alone. A place owns `room` positions of `beam` slots each in keys and values [slots, H · D], of
    which `lengths` [places] are filled; `ancestry` is [places, beam, room].
    """
    rows, width = context.shape
    size = width // heads
    self_attention_kernel[(rows, heads)](
        qkv, keys, values, ancestry, places, lengths, done, room, gate, threshold, context, squares, size**-0.5,
        BEAM=beam, H=heads, D=size, BD=power_of_2(size), BS=KEYS, ACTIVATION=activation, num_warps=4,
        **early(qkv),
    )  # fmt: skip


@triton.jit
def self_attention_kernel(
    qkv, keys, values, ancestry, places, lengths, done, room, gate, threshold, context, squares, scale,
    BEAM: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BS: tl.constexpr, ACTIVATION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_results(EARLY)
    i_r = tl.program_id(0)
    i_h = tl.program_id(1)
    i_beam = i_r % BEAM
    i_place = tl.load(places + i_r // BEAM)
    if i_place < 0:
        return
    if tl.load(done + i_place) != 0:
        return
    length = tl.load(lengths + i_place)
    stride = tl.load(room)
    C: tl.constexpr = H * D
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    o_s = tl.arange(0, BS)
    # [BD]
    p_q = qkv + i_r * 3 * C + i_h * D + o_d
    b_q = tl.load(p_q, mask=m_d, other=0.0).to(tl.float32) * scale
    b_k = tl.load(p_q + C, mask=m_d, other=0.0)
    b_v = tl.load(p_q + 2 * C, mask=m_d, other=0.0)
    first = i_place.to(tl.int64) * stride
    o_new = ((first + length) * BEAM + i_beam) * C + i_h * D + o_d
    tl.store(keys + o_new, b_k, mask=m_d)
    tl.store(values + o_new, b_v, mask=m_d)
    theta = 0.0
    if threshold is not None:
        theta = tl.load(threshold + i_h)
    # the new position first: it is in registers
    score = tl.sum(b_q * b_k.to(tl.float32), axis=0) - theta
    if ACTIVATION == "softmax":
        highest = score
        total = 1.0
        b_out = b_v.to(tl.float32)
    else:
        b_out = activate(score, ACTIVATION) * b_v.to(tl.float32)
    p_ancestry = ancestry + (i_place.to(tl.int64) * BEAM + i_beam) * stride
    for i_s in range(0, length, BS):
        m_s = i_s + o_s < length
        b_row = tl.load(p_ancestry + i_s + o_s, mask=m_s, other=0).to(tl.int64)
        # [BS, BD]
        o_slot = (((first + i_s + o_s) * BEAM + b_row) * C + i_h * D)[:, None] + o_d[None, :]
        m_slot = m_s[:, None] & m_d[None, :]
        b_keys = tl.load(keys + o_slot, mask=m_slot, other=0.0).to(tl.float32)
        b_values = tl.load(values + o_slot, mask=m_slot, other=0.0).to(tl.float32)
        # [BS]
        b_score = tl.sum(b_keys * b_q[None, :], axis=1) - theta
        if ACTIVATION == "softmax":
            b_score = tl.where(m_s, b_score, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(b_score, axis=0))
            b_w = tl.exp(b_score - new_highest)
            shrink = tl.exp(highest - new_highest)
            total = total * shrink + tl.sum(b_w, axis=0)
            b_out *= shrink
            highest = new_highest
        else:
            b_w = activate(tl.where(m_s, b_score, 0.0), ACTIVATION)
        b_out += tl.sum(b_w[:, None] * b_values, axis=0)
    if ACTIVATION == "softmax":
        b_out /= total
    tl.store(squares + i_r * H + i_h, tl.sum(b_out * b_out, axis=0))
    if gate is not None:
        b_out *= tl.sigmoid(tl.load(gate + i_h * D + o_d, mask=m_d, other=0.0) * b_out)
    tl.store(context + i_r * C + i_h * D + o_d, b_out.to(context.dtype.element_ty), mask=m_d)


def attend_blocks(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, gate: Tensor | None, threshold: Tensor | None,
    context: Tensor, squares: Tensor, *, blocks: int, queries: int, heads: int, activation: str,
) -> None:  # fmt: skip
    """Blocks of queries of a sentence against all its keys: q [N, H · D], keys and values [M, H · D], of any row strides.

    table [blocks, 4] (int32) holds first query, their number (at most `queries`, 0 for an empty block), first key and
    number of keys of each block. Context [N, H · D] and squares [N, H] come out; rows in no block are not written.
    """
    width = context.shape[-1]
    size = width // heads
    block_attention_kernel[(blocks, heads)](
        q, keys, values, table, gate, threshold, context, squares, size**-0.5, q.stride(0), keys.stride(0),
        values.stride(0), H=heads, D=size, BD=max(16, power_of_2(size)), BQ=max(16, power_of_2(queries)), BS=KEYS,
        ACTIVATION=activation, PRECISION=PRECISION, num_warps=4, **early(q),
    )  # fmt: skip


@triton.jit
def block_attention_kernel(
    q, keys, values, table, gate, threshold, context, squares, scale, stride_q, stride_k, stride_v,
    H: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BQ: tl.constexpr, BS: tl.constexpr, ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_results(EARLY)
    i_block = tl.program_id(0)
    i_h = tl.program_id(1)
    n_q = tl.load(table + i_block * 4 + 1)
    if n_q == 0:
        return
    first_q = tl.load(table + i_block * 4)
    first_k = tl.load(table + i_block * 4 + 2)
    n_k = tl.load(table + i_block * 4 + 3)
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    o_q = tl.arange(0, BQ)
    o_s = tl.arange(0, BS)
    m_q = (o_q < n_q)[:, None] & m_d[None, :]
    # [BQ, BD]
    o_row = (first_q + o_q).to(tl.int64)
    b_q = tl.load(q + o_row[:, None] * stride_q + i_h * D + o_d[None, :], mask=m_q, other=0.0)
    theta = 0.0
    if threshold is not None:
        theta = tl.load(threshold + i_h)
    b_out = tl.zeros([BQ, BD], dtype=tl.float32)
    b_highest = tl.full([BQ], float("-inf"), dtype=tl.float32)
    b_total = tl.zeros([BQ], dtype=tl.float32)
    for i_s in range(0, n_k, BS):
        m_s = i_s + o_s < n_k
        m_k = m_s[:, None] & m_d[None, :]
        o_key = (first_k + i_s + o_s).to(tl.int64)[:, None]
        # [BS, BD]
        b_k = tl.load(keys + o_key * stride_k + i_h * D + o_d[None, :], mask=m_k, other=0.0)
        b_v = tl.load(values + o_key * stride_v + i_h * D + o_d[None, :], mask=m_k, other=0.0)
        # [BQ, BS]
        b_score = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION) * scale - theta
        if ACTIVATION == "softmax":
            b_score = tl.where(m_s[None, :], b_score, float("-inf"))
            b_new = tl.maximum(b_highest, tl.max(b_score, axis=1))
            b_w = tl.exp(b_score - b_new[:, None])
            b_shrink = tl.exp(b_highest - b_new)
            b_total = b_total * b_shrink + tl.sum(b_w, axis=1)
            b_out *= b_shrink[:, None]
            b_highest = b_new
        else:
            b_w = activate(tl.where(m_s[None, :], b_score, 0.0), ACTIVATION)
        b_out = tl.dot(b_w.to(b_v.dtype), b_v, b_out, input_precision=PRECISION)
    if ACTIVATION == "softmax":
        b_out /= b_total[:, None]
    tl.store(squares + o_row * H + i_h, tl.sum(b_out * b_out, axis=1), mask=o_q < n_q)
    if gate is not None:
        b_out *= tl.sigmoid(tl.load(gate + i_h * D + o_d, mask=m_d, other=0.0)[None, :] * b_out)
    C: tl.constexpr = H * D
    p_out = context + o_row[:, None] * C + i_h * D + o_d[None, :]
    tl.store(p_out, b_out.to(context.dtype.element_ty), mask=m_q)
