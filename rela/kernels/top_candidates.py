"""The best next tokens of every row, from hidden states: logits are formed tile by tile and never stored.

A tile of the vocabulary leaves its largest logits and its share of the log-sum-exp; a second kernel merges a row's tiles.
A logit and its token travel as one 64-bit key, ordered like the logit, so that a maximum finds both at once.

Legend: R rows, C width, V vocabulary, K candidates of a row.
"""

import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.early_launch import early, wait_for_results
from rela.kernels.problem import PRECISION, ceil_div, power_of_2

TILE = 128  # tokens of one program

# The key of -inf with the highest index: what stands where there is no candidate.
EMPTY = tl.constexpr(-0x7F800001 << 32)
NO_INDEX = tl.constexpr(0x7FFFFFFF)


def tiles_of(vocabulary: int) -> int:
    return ceil_div(vocabulary, TILE)


def tile_candidates(
    x: Tensor, weight: Tensor, places: Tensor, lengths: Tensor, limits: Tensor, banned: Tensor, keys: Tensor,
    highest: Tensor, totals: Tensor, *, beam: int, count: int, eos: int,
) -> None:  # fmt: skip
    """The `count` best tokens of each row and tile: x [R, C], weight [V, C]; keys [R, tiles, count] come out.

    highest and totals [R, tiles] get the largest logit and the sum of exponentials below it. Banned tokens are no candidates;
    where lengths[place] has reached limits[place], </s> alone is. Both still count in the sums.
    """
    (rows, inner), vocabulary = x.shape, weight.size(0)
    BM = min(max(16, power_of_2(rows)), 64)
    tile_kernel[(tiles_of(vocabulary), ceil_div(rows, BM))](
        x, weight, places, lengths, limits, banned, keys, highest, totals, rows, vocabulary, banned.numel(),
        BEAM=beam, COUNT=count, EOS=eos, C=inner, BM=BM, BV=TILE, BK=min(64, max(16, power_of_2(inner))),
        PRECISION=PRECISION, num_warps=8 if BM == 64 else 4, num_stages=4, **early(x),
    )  # fmt: skip


@triton.jit(do_not_specialize=["R"])
def tile_kernel(
    x, weight, places, lengths, limits, banned, keys, highest, totals, R, V, n_banned,
    BEAM: tl.constexpr, COUNT: tl.constexpr, EOS: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
    BK: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_results(EARLY)
    i_v = tl.program_id(0)
    n_tiles = tl.num_programs(0)
    o_v = i_v * BV + tl.arange(0, BV)
    o_r = tl.program_id(1) * BM + tl.arange(0, BM)
    o_k = tl.arange(0, BK)
    m_r = o_r < R
    m_v = o_v < V
    p_w = weight + o_v.to(tl.int64)[:, None] * C + o_k[None, :]
    p_x = x + o_r[:, None] * C + o_k[None, :]
    b_logits = tl.zeros([BM, BV], dtype=tl.float32)
    for i_k in range(0, C, BK):
        m_k = i_k + o_k < C
        b_x = tl.load(p_x + i_k, mask=m_r[:, None] & m_k[None, :], other=0.0)
        b_w = tl.load(p_w + i_k, mask=m_v[:, None] & m_k[None, :], other=0.0)
        b_logits = tl.dot(b_x, tl.trans(b_w), b_logits, input_precision=PRECISION)
    b_logits = tl.where(m_v[None, :], b_logits, float("-inf"))
    o_tile = o_r * n_tiles + i_v
    b_highest = tl.max(b_logits, axis=1)
    tl.store(highest + o_tile, b_highest, mask=m_r)
    tl.store(totals + o_tile, tl.sum(tl.exp(b_logits - b_highest[:, None]), axis=1), mask=m_r)
    b_place = tl.maximum(tl.load(places + o_r // BEAM, mask=m_r, other=0), 0)
    b_at_limit = tl.load(lengths + b_place) >= tl.load(limits + b_place)
    m_word = m_v
    for i in range(n_banned):
        m_word = m_word & (o_v != tl.load(banned + i))
    m_allowed = m_word[None, :] & ((o_v == EOS)[None, :] | (b_at_limit == 0)[:, None])
    b_keys = tl.where(m_allowed, sort_key(b_logits, o_v[None, :]), EMPTY)
    for i in tl.static_range(COUNT):
        b_best = tl.max(b_keys, axis=1)
        tl.store(keys + o_tile.to(tl.int64) * COUNT + i, b_best, mask=m_r)
        b_keys = tl.where(b_keys == b_best[:, None], EMPTY, b_keys)


def merge_tiles(keys: Tensor, highest: Tensor, totals: Tensor, log_probs: Tensor, tokens: Tensor) -> None:
    """The best tokens of each row [R, count] and their log-probabilities, from its tiles."""
    rows, tiles, count = keys.shape
    size = power_of_2(tiles * count)
    merge_kernel[(rows,)](
        keys, highest, totals, log_probs, tokens, tiles, COUNT=count, BT=power_of_2(tiles), BN=size,
        num_warps=4 if size <= 4096 else 8, **early(keys),
    )  # fmt: skip


@triton.jit
def merge_kernel(
    keys, highest, totals, log_probs, tokens, n_tiles, COUNT: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_results(EARLY)
    i_r = tl.program_id(0)
    o_t = tl.arange(0, BT)
    m_t = o_t < n_tiles
    o_n = tl.arange(0, BN)
    b_keys = tl.load(keys + i_r.to(tl.int64) * n_tiles * COUNT + o_n, mask=o_n < n_tiles * COUNT, other=EMPTY)
    b_highest = tl.load(highest + i_r * n_tiles + o_t, mask=m_t, other=float("-inf"))
    b_totals = tl.load(totals + i_r * n_tiles + o_t, mask=m_t, other=0.0)
    top = tl.max(b_highest, axis=0)
    log_total = tl.log(tl.sum(b_totals * tl.exp(b_highest - top), axis=0))
    for i in tl.static_range(COUNT):
        best = tl.max(b_keys, axis=0)
        tl.store(log_probs + i_r * COUNT + i, value_of(best) - top - log_total)
        tl.store(tokens + i_r * COUNT + i, index_of(best))
        b_keys = tl.where(b_keys == best, EMPTY, b_keys)


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
