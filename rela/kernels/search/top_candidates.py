"""The best next tokens of every row, from hidden states, without sorting a vocabulary.

The kernel of the output layer also writes the largest logit of each tile of tokens, and its part of the log-sum-exp. A
row's n best tokens are in the n tiles with the largest maxima (for any other tile, n tokens are at least as good as
all of its own), so a second kernel reads those tiles alone. A logit and its token are one 64-bit key, ordered like the
logit, so that choosing the best keys finds both at once.

Letters are those of `rela.attention`; K is `beam`.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import PRECISION, ceil_div, power_of_2
from rela.kernels.early_launch import early, let_next_start, prefetch, wait_for_results

TILE = 64  # tokens of which the largest logit is kept


@dataclass(frozen=True)
class Program:
    """Rows and tiles of one program of the output layer, its warps, and the stages of its pipelined loads."""

    rows: int
    tiles: int
    warps: int
    stages: int


# With few rows it matters to have many programs, with many rows to have little traffic.
FEW_ROWS, MANY_ROWS = Program(rows=64, tiles=1, warps=4, stages=4), Program(rows=128, tiles=2, warps=4, stages=3)

# The key of -inf with the highest index: the key where there is no candidate.
EMPTY = tl.constexpr(-0x7F800001 << 32)
NO_INDEX = tl.constexpr(0x7FFFFFFF)


def tiles_of(vocabulary: int) -> int:
    return ceil_div(vocabulary, TILE)


def tile_logits(
    x: Tensor, weight: Tensor, banned: Tensor, logits: Tensor, tiles: Tensor, *, in_chain: bool = False
) -> None:
    """Write logits [R, V] in float32 of x [R, C] and weight [V, C], and three numbers a tile, tiles [3, R, tiles].

    These are the largest logit, the sum of exponentials relative to it, and the largest logit that is not banned.
    """
    (rows, inner), vocabulary = x.shape, weight.size(0)
    program = FEW_ROWS if rows <= FEW_ROWS.rows else MANY_ROWS
    BM, BV = min(max(16, power_of_2(rows)), program.rows), program.tiles * TILE
    line = 128 // weight.element_size()  # weights of one cache line
    # programs of the same weights are neighbours
    tile_kernel[(ceil_div(rows, BM), ceil_div(vocabulary, BV))](
        x,
        weight,
        banned,
        logits,
        tiles,
        rows,
        vocabulary,
        tiles.size(2),
        BANNED=banned.numel(),
        C=inner,
        BM=BM,
        BV=BV,
        TILE=TILE,
        BC=min(line, max(16, power_of_2(inner))),
        LINE=line,
        LINES=power_of_2(ceil_div(inner, line)),
        PRECISION=PRECISION,
        num_warps=program.warps,
        num_stages=program.stages,
        **early(in_chain, x),
    )


@triton.jit(do_not_specialize=["R"])
def tile_kernel(
    x,
    weight,
    banned,
    logits,
    tiles,
    R,
    V,
    n_tiles,
    BANNED: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BV: tl.constexpr,
    TILE: tl.constexpr,
    BC: tl.constexpr,
    LINE: tl.constexpr,
    LINES: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_v = tl.program_id(1)
    o_v = i_v * BV + tl.arange(0, BV)
    o_r = tl.program_id(0) * BM + tl.arange(0, BM)
    o_c = tl.arange(0, BC)
    m_r = o_r < R
    m_v = o_v < V
    m_allowed = m_v
    for i in tl.static_range(BANNED):
        m_allowed = m_allowed & (o_v != tl.load(banned + i))
    o_line = tl.minimum(tl.arange(0, LINES) * LINE, C - 1)
    prefetch(weight + tl.minimum(o_v, V - 1).to(tl.int64)[:, None] * C + o_line[None, :], EARLY)
    wait_for_results(EARLY)
    p_w = weight + o_v.to(tl.int64)[:, None] * C + o_c[None, :]
    p_x = x + o_r[:, None] * C + o_c[None, :]
    b_logits = tl.zeros([BM, BV], dtype=tl.float32)
    for i_c in range(0, C, BC):
        m_c = i_c + o_c < C
        b_x = tl.load(p_x + i_c, mask=m_r[:, None] & m_c[None, :], other=0.0)
        b_w = tl.load(p_w + i_c, mask=m_v[:, None] & m_c[None, :], other=0.0)
        b_logits = tl.dot(b_x, tl.trans(b_w), b_logits, input_precision=PRECISION)
    mask = m_r[:, None] & m_v[None, :]
    tl.store(logits + o_r.to(tl.int64)[:, None] * V + o_v[None, :], b_logits, mask=mask)
    # [BM, TILES, TILE]
    TILES: tl.constexpr = BV // TILE
    b_allowed = tl.reshape(tl.where(m_allowed[None, :], b_logits, float("-inf")), [BM, TILES, TILE])
    b_logits = tl.reshape(tl.where(m_v[None, :], b_logits, float("-inf")), [BM, TILES, TILE])
    o_t = i_v * TILES + tl.arange(0, TILES)
    o_tile = o_r[:, None] * n_tiles + o_t[None, :]
    m_tile = m_r[:, None] & (o_t < n_tiles)[None, :]
    b_highest = tl.max(b_logits, axis=2)
    tl.store(tiles + o_tile, b_highest, mask=m_tile)
    tl.store(tiles + R * n_tiles + o_tile, tl.sum(tl.exp(b_logits - b_highest[:, :, None]), axis=2), mask=m_tile)
    tl.store(tiles + 2 * R * n_tiles + o_tile, tl.max(b_allowed, axis=2), mask=m_tile)


def best_tokens(
    logits: Tensor,
    tiles: Tensor,
    active: Tensor,
    lengths: Tensor,
    limits: Tensor,
    banned: Tensor,
    log_probs: Tensor,
    tokens: Tensor,
    *,
    beam: int,
    eos: int,
    in_chain: bool = False,
) -> None:
    """Write the best tokens of each row [R, count] and their log-probabilities, best first, banned ones left out.

    Row r belongs to sentence active[r // beam]. A sentence that has reached its limit may only end. Where there are
    fewer than `count` tokens, the rest is -inf.
    """
    (rows, vocabulary), count = logits.shape, tokens.size(1)
    BN = max(2, power_of_2(count))
    best_kernel[(rows,)](
        logits,
        tiles,
        active,
        lengths,
        limits,
        banned,
        log_probs,
        tokens,
        rows,
        vocabulary,
        tiles.size(2),
        BANNED=banned.numel(),
        BEAM=beam,
        EOS=eos,
        COUNT=count,
        BN=BN,
        BT=max(BN, power_of_2(tiles.size(2))),
        BV=TILE,
        num_warps=4,
        **early(in_chain, logits),
    )


@triton.jit(do_not_specialize=["R"])
def best_kernel(
    logits,
    tiles,
    active,
    lengths,
    limits,
    banned,
    log_probs,
    tokens,
    R,
    V,
    n_tiles,
    BANNED: tl.constexpr,
    BEAM: tl.constexpr,
    EOS: tl.constexpr,
    COUNT: tl.constexpr,
    BN: tl.constexpr,
    BT: tl.constexpr,
    BV: tl.constexpr,
    EARLY: tl.constexpr,
):
    let_next_start(EARLY)
    i_r = tl.program_id(0)
    i_b = tl.maximum(tl.load(active + i_r // BEAM), 0)
    at_limit = tl.load(lengths + i_b) >= tl.load(limits + i_b)
    wait_for_results(EARLY)
    o_t = tl.arange(0, BT)
    m_t = o_t < n_tiles
    p_tile = tiles + i_r * n_tiles + o_t
    b_highest = tl.load(p_tile, mask=m_t, other=float("-inf"))
    b_totals = tl.load(p_tile + R * n_tiles, mask=m_t, other=0.0)
    b_best = tl.load(p_tile + 2 * R * n_tiles, mask=m_t, other=float("-inf"))
    top = tl.max(b_highest, axis=0)
    log_total = tl.log(tl.sum(b_totals * tl.exp(b_highest - top), axis=0))
    # [BN]: the tiles with the largest maxima
    b_tile = index_of(tl.topk(tl.where(m_t, sort_key(b_best, o_t), EMPTY), BN))
    # [BN, BV]: their tokens
    m_tile = b_tile < n_tiles
    o_v = tl.where(m_tile, b_tile, 0)[:, None] * BV + tl.arange(0, BV)[None, :]
    mask = m_tile[:, None] & (o_v < V)
    b_logits = tl.load(logits + i_r.to(tl.int64) * V + o_v, mask=mask, other=float("-inf"))
    for i in tl.static_range(BANNED):
        mask = mask & (o_v != tl.load(banned + i))
    b_allowed = tl.topk(tl.reshape(tl.where(mask, sort_key(b_logits, o_v), EMPTY), [BN * BV]), BN)
    b_value, b_token = value_of(b_allowed), index_of(b_allowed)
    o_n = tl.arange(0, BN)
    if at_limit:
        b_value = tl.where(o_n == 0, tl.load(logits + i_r.to(tl.int64) * V + EOS), float("-inf"))
        b_token = tl.where(o_n == 0, EOS, NO_INDEX)
    tl.store(log_probs + i_r * COUNT + o_n, b_value - top - log_total, mask=o_n < COUNT)
    tl.store(tokens + i_r * COUNT + o_n, b_token, mask=o_n < COUNT)


@triton.jit
def sort_key(b_value, b_index):
    """One int64 that orders like the value and, among equals, prefers the lower index (below 2³¹)."""
    b_bits = b_value.to(tl.int32, bitcast=True)
    b_order = b_bits ^ ((b_bits >> 31) & 0x7FFFFFFF)
    return (b_order.to(tl.int64) << 32) | (0x7FFFFFFF - b_index).to(tl.int64)


@triton.jit
def value_of(key):
    b_order = (key >> 32).to(tl.int32)
    return (b_order ^ ((b_order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def index_of(key):
    return (0x7FFFFFFF - (key & 0x7FFFFFFF)).to(tl.int32)
