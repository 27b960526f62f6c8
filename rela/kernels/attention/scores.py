"""What every attention kernel shares: which keys a query sees, and the step from a product q·k to a weight.

Causality, key lengths, key starts, windows and packing are one idea here: each query sees an interval of keys, and so
each key is seen by an interval of queries. Rows are numbered within a batch element, or over all sequences when they
are packed; a query t of a sequence whose rows end at `end_q` sees, causally, the keys up to `t + end_k - end_q`. A
window lets it see `left` keys before that one and `right` keys after it.
"""

import triton
import triton.language as tl

LEAK = tl.constexpr(0.01)  # torch.nn.functional.leaky_relu's default
LOWEST = tl.constexpr(-1e38)  # a score that a product cannot take beyond the range of float32


@triton.jit
def sequence_of(o_row, ends, B, search_steps):
    """The packed sequence each row lies in, found by bisection over `ends`; B for rows after the last sequence."""
    b_low = o_row * 0
    b_high = b_low + B
    for _ in range(search_steps):
        b_middle = (b_low + b_high) // 2
        # where low == high == B there is no end to load, and nothing moves
        b_end = tl.load(ends + b_middle, mask=b_middle < B, other=2147483647)
        m_after = b_end <= o_row
        b_low = tl.where(m_after, b_middle + 1, b_low)
        b_high = tl.where(m_after, b_high, b_middle)
    return b_low


@triton.jit
def seen_keys(o_t, i_b, T, S, B, cu_q, cu_k, search_steps, key_lengths, key_starts, left, right, CAUSAL: tl.constexpr):
    """First key and one past the last key that each query sees, two blocks shaped like o_t."""
    if cu_q is not None:
        b_i = sequence_of(o_t, cu_q + 1, B, search_steps)
        b_next = tl.minimum(b_i + 1, B)
        b_begin = tl.load(cu_k + b_i)
        b_end = tl.load(cu_k + b_next)
        if CAUSAL:
            b_end = tl.minimum(b_end, o_t + 1 + b_end - tl.load(cu_q + b_next))
    else:
        b_begin = o_t * 0
        b_end = b_begin + S
        if CAUSAL:
            b_end = tl.minimum(b_end, o_t + 1 + S - T)
        if right is not None:
            b_end = tl.minimum(b_end, o_t + 1 + S - T + right)
        if left is not None:
            b_begin = tl.maximum(b_begin, o_t + S - T - left)
        if key_lengths is not None:
            b_end = tl.minimum(b_end, tl.load(key_lengths + i_b).to(tl.int32))
        if key_starts is not None:
            b_begin = tl.maximum(b_begin, tl.load(key_starts + i_b).to(tl.int32))
    return b_begin, b_end


@triton.jit
def seeing_queries(
    o_s, i_b, T, S, B, cu_q, cu_k, search_steps, key_lengths, key_starts, left, right, CAUSAL: tl.constexpr
):
    """First query and one past the last query that see each key, two blocks shaped like o_s."""
    if cu_q is not None:
        b_i = sequence_of(o_s, cu_k + 1, B, search_steps)
        b_next = tl.minimum(b_i + 1, B)
        b_begin = tl.load(cu_q + b_i)
        b_end = tl.load(cu_q + b_next)
        if CAUSAL:
            b_begin = tl.maximum(b_begin, o_s + b_end - tl.load(cu_k + b_next))
    else:
        b_begin = o_s * 0
        b_end = b_begin + T
        if CAUSAL:
            b_begin = tl.maximum(b_begin, o_s + T - S)
        if right is not None:
            b_begin = tl.maximum(b_begin, o_s + T - S - right)
        if left is not None:
            b_end = tl.minimum(b_end, o_s + 1 + T - S + left)
        if key_lengths is not None:
            b_begin = tl.where(o_s < tl.load(key_lengths + i_b), b_begin, T)
        if key_starts is not None:
            b_begin = tl.where(o_s >= tl.load(key_starts + i_b), b_begin, T)
    return b_begin, b_end


@triton.jit
def shifted(b_product, score_scale, b_theta):
    """Scores from products: scaled, unless the scale waits until the output, and less the threshold if there is one."""
    if score_scale is not None:
        b_product = b_product * score_scale
    if b_theta is not None:
        b_product = b_product - b_theta
    return b_product


@triton.jit
def activate(b_score, ACTIVATION: tl.constexpr):
    """Weights from scores. NaN stays NaN, as in torch.relu."""
    if ACTIVATION == "relu":
        b_weight = tl.maximum(b_score, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "relu2":
        b_weight = tl.maximum(b_score, 0.0, propagate_nan=tl.PropagateNan.ALL)
        b_weight = b_weight * b_weight
    elif ACTIVATION == "leaky_relu":
        b_weight = tl.where(b_score > 0.0, b_score, b_score * LEAK)
    else:
        tl.static_assert(False, "activate has no code for this activation")
    return b_weight


@triton.jit
def differentiate(b_dweight, b_score, ACTIVATION: tl.constexpr):
    """Gradient of the scores from that of the weights; the slope at zero is PyTorch's, the one from the left."""
    if ACTIVATION == "relu":
        b_dscore = tl.where(b_score <= 0.0, 0.0, b_dweight)
    elif ACTIVATION == "relu2":
        b_dscore = tl.where(b_score <= 0.0, 0.0, b_dweight) * 2.0 * b_score
    elif ACTIVATION == "leaky_relu":
        b_dscore = tl.where(b_score > 0.0, b_dweight, b_dweight * LEAK)
    else:
        tl.static_assert(False, "differentiate has no code for this activation")
    return b_dscore


@triton.jit
def seen_weights(b_score, m_seen, ACTIVATION: tl.constexpr, RECTIFIES: tl.constexpr):
    """Weights from scores; exactly zero where m_seen is False, whatever act(0) is. None: all are seen."""
    if m_seen is None:
        b_weight = activate(b_score, ACTIVATION)
    elif RECTIFIES:
        b_weight = activate(tl.where(m_seen, b_score, 0.0), ACTIVATION)
    else:
        b_weight = tl.where(m_seen, activate(b_score, ACTIVATION), 0.0)
    return b_weight


@triton.jit
def seen_gradients(b_dweight, b_score, m_seen, ACTIVATION: tl.constexpr, RECTIFIES: tl.constexpr):
    """Gradient of the scores from that of the weights; exactly zero where m_seen is False. None: all are seen.

    A rectifier has no slope at a score of zero, so that the masked score of `seen_weights` serves here too.
    """
    if m_seen is None:
        b_dscore = differentiate(b_dweight, b_score, ACTIVATION)
    elif RECTIFIES:
        b_dscore = differentiate(b_dweight, tl.where(m_seen, b_score, 0.0), ACTIVATION)
    else:
        b_dscore = tl.where(m_seen, differentiate(b_dweight, b_score, ACTIVATION), 0.0)
    return b_dscore


@triton.jit
def dropout_key(seed, i_b, i_h):
    """Two random words for a batch element and head: Philox, from the seed."""
    key_0, key_1, _, _ = tl.philox(tl.load(seed), i_b, i_h, i_b * 0, i_b * 0)
    return key_0, key_1


@triton.jit
def mixed(b_bits):
    """Every bit of 32 depends on every other: shifts and multiplications found by search (lowbias32)."""
    b_bits = (b_bits ^ (b_bits >> 16)) * 0x7FEB352D
    b_bits = (b_bits ^ (b_bits >> 15)) * 0x846CA68B
    return b_bits ^ (b_bits >> 16)


@triton.jit
def query_number(key_0, o_t):
    """A random odd number for each query."""
    return mixed((o_t.to(tl.uint32) * 0x9E3779B9) ^ key_0) | 1


@triton.jit
def key_number(key_1, o_s):
    """A random odd number for each key."""
    return mixed(o_s.to(tl.uint32) * 0x85EBCA6B + key_1) | 1


@triton.jit
def kept(key_0, key_1, drop_below, o_t, o_s):
    """True where dropout keeps a weight: a pure function of the head's key, query and key, whatever the tiles.

    Fifteen bits of the product of a query's and a key's number decide. That is three instructions a weight, since the
    numbers are computed once a row and once a column, where Philox takes fifty. o_t and o_s broadcast against each
    other; `drop_below` is the dropout rate in units of 2⁻¹⁵.
    """
    b_bits = query_number(key_0, o_t) * key_number(key_1, o_s)
    return ((b_bits >> 16) & 0x7FFF).to(tl.int32) >= drop_below


@triton.jit
def load_mask(mask, strides, o_t, o_s, m_seen):
    """m_seen where the boolean mask allows it too; o_t and o_s broadcast against each other."""
    p_mask = mask + tl.cast(o_t, tl.int64) * strides[2] + tl.cast(o_s, tl.int64) * strides[3]
    return m_seen & (tl.load(p_mask, mask=m_seen, other=0) != 0)


@triton.jit
def load_bias(bias, strides, o_t, o_s, m_seen, factor):
    """Of a float mask, what is added to the scores, times `factor`; and m_seen where it is not -inf.

    Bounded below: the lowest finite number, which some masks are made of, must not become -inf by the factor.
    """
    p_bias = bias + tl.cast(o_t, tl.int64) * strides[2] + tl.cast(o_s, tl.int64) * strides[3]
    b_bias = tl.load(p_bias, mask=m_seen, other=0.0).to(tl.float32)
    m_seen = m_seen & (b_bias != float("-inf"))
    return tl.maximum(tl.where(m_seen, b_bias, 0.0) * factor, LOWEST), m_seen


@triton.jit
def in_interval(o_row, o_col, b_begin, b_end, rows):
    """True where a column lies in the interval of its row, and the row is one of `rows`."""
    return (o_col[None, :] >= b_begin[:, None]) & (o_col[None, :] < b_end[:, None]) & (o_row < rows)[:, None]


@triton.jit
def under_mask(b_score, mask, strides, o_t, o_s, m_seen, factor, BIASED: tl.constexpr):
    """Scores plus `factor` times a float mask, and m_seen where the mask allows it; as they are where it is None."""
    if mask is not None:
        if BIASED:
            b_bias, m_seen = load_bias(mask, strides, o_t, o_s, m_seen, factor)
            b_score += b_bias
        else:
            m_seen = load_mask(mask, strides, o_t, o_s, m_seen)
    return b_score, m_seen


@triton.jit
def load_rows(base, start, stride, o_row, o_d, first, last, D: tl.constexpr, BD: tl.constexpr, MASKED: tl.constexpr):
    """Rows start + o_row of a matrix, [rows, BD]; zeros beyond D and, if MASKED, outside first … last - 1."""
    # 64 bits from the matrix to the tile, 32 within it
    p_rows = base + start * tl.cast(stride, tl.int64) + o_row[:, None] * stride + o_d[None, :]
    if MASKED:
        m_row = (start + o_row >= first) & (start + o_row < last)
        if D == BD:
            b_rows = tl.load(p_rows, mask=m_row[:, None], other=0.0)
        else:
            b_rows = tl.load(p_rows, mask=m_row[:, None] & (o_d < D)[None, :], other=0.0)
    elif D == BD:
        b_rows = tl.load(p_rows)
    else:
        b_rows = tl.load(p_rows, mask=(o_d < D)[None, :], other=0.0)
    return b_rows


@triton.jit
def store_rows(base, start, stride, o_row, o_d, last, b_rows, D: tl.constexpr):
    """Write b_rows to the rows start + o_row of a matrix that come before `last`."""
    p_rows = base + start * tl.cast(stride, tl.int64) + o_row[:, None] * stride + o_d[None, :]
    tl.store(p_rows, b_rows.to(base.dtype.element_ty), mask=(start + o_row < last)[:, None] & (o_d < D)[None, :])


@triton.jit
def head_of(base, strides, i_b, i_h):
    """Where the matrix of batch element i_b and head i_h begins."""
    return base + i_b.to(tl.int64) * strides[0] + i_h.to(tl.int64) * strides[1]
