"""The best source word of each target word, from the weights of some heads of cross attention, in one launch.

In plain PyTorch it is `rela.alignment.online.OnlineLinks.read_batch`, the specification: some sixty launches on small
tensors. Here a program has one target word: it adds up the rows of its subwords, then the columns of each source word.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import power_of_2
from rela.kernels.launch import on_device


def best_source_words(
    source: Tensor,
    target: Tensor,
    weights: Tensor,
    starts: Tensor,
    letters: Tensor,
    *,
    shifted: bool,
    shares: bool,
    pad: int,
    lone: int,
    special: int,
) -> tuple[Tensor, Tensor]:
    """The best source word of each target word int32 [B, T], or -1, and for which pairs that holds, bool [B].

    Of ids [B, S] and [B, T] with `pad` behind, and weights [B, heads, T + 1, S + 1] in float32. By id, int8 [2, V] of
    both sides: `starts` is 1 for a subword that begins a word, 0 for one that goes on with it, `lone` for a ▁ and
    `special` for what is no text; `letters` is 1 for a subword that has more than punctuation marks. `shifted` takes
    the row of the step after a token's; `shares` divides a head's rows by their sums before the mean over heads.
    """
    (B, S), T = source.shape, target.size(1)
    best = torch.empty(B, T, dtype=torch.int32, device=source.device)
    is_read = torch.empty(B, dtype=torch.bool, device=source.device)
    most_keys = max(32, power_of_2(S))
    with on_device(source):
        best_source_words_kernel[(B, T)](
            source.contiguous(),
            target.contiguous(),
            weights.contiguous(),
            starts,
            letters,
            best,
            is_read,
            S,
            T,
            starts.size(1),
            weights.size(1),
            SHIFT=int(shifted),
            SHARES=shares,
            PAD=pad,
            LONE=lone,
            SPECIAL=special,
            BS=most_keys,
            BT=max(32, power_of_2(T)),
            num_warps=1 if most_keys <= 128 else 4,
        )
    return best, is_read


@triton.jit
def add_within_word(b_sum, m_begins, b_next_sum, m_next_begins):
    """Two stretches of subwords as one: the sum of its last word so far, and whether a word begins in it."""
    return tl.where(m_next_begins > 0, b_next_sum, b_sum + b_next_sum), m_begins | m_next_begins


@triton.jit
def subwords_of(ids, starts, o_at, N, PAD: tl.constexpr):
    """Of a sentence of N ids: the ids, where they are text, their starts, the starts behind them, their words from 1.

    What is behind the last one begins a word.
    """
    b_id = tl.load(ids + o_at, mask=o_at < N, other=PAD)
    b_next_id = tl.load(ids + o_at + 1, mask=o_at + 1 < N, other=PAD)
    m_inside = b_id != PAD
    b_start = tl.load(starts + b_id, mask=m_inside, other=1).to(tl.int32)
    b_next = tl.load(starts + b_next_id, mask=b_next_id != PAD, other=1).to(tl.int32)
    m_begins = m_inside & ((b_start > 0) | (o_at == 0))
    return b_id, m_inside, b_start, b_next, m_begins.to(tl.int32), tl.cumsum(m_begins.to(tl.int32), 0)


@triton.jit
def unspelled(m_inside, b_start, b_next, LONE: tl.constexpr, SPECIAL: tl.constexpr):
    """How many subwords belong to no word that is spelled: a ▁ needs something behind it."""
    return tl.sum((m_inside & ((b_start == SPECIAL) | ((b_start == LONE) & (b_next != 0)))).to(tl.int32), 0)


@triton.jit
def has_letters(letters, b_id, m_word):
    """Whether a word, the subwords in m_word, has more than punctuation marks."""
    return tl.max(tl.load(letters + b_id, mask=m_word, other=0).to(tl.int32), 0) > 0


@triton.jit(do_not_specialize=["S", "T", "V", "heads"])
def best_source_words_kernel(
    source,
    target,
    weights,
    starts,
    letters,
    best,
    is_read,
    S,
    T,
    V,
    heads,
    SHIFT: tl.constexpr,
    SHARES: tl.constexpr,
    PAD: tl.constexpr,
    LONE: tl.constexpr,
    SPECIAL: tl.constexpr,
    BS: tl.constexpr,
    BT: tl.constexpr,
):
    i_b = tl.program_id(0).to(tl.int64)
    i_word = tl.program_id(1)
    o_s = tl.arange(0, BS)
    o_t = tl.arange(0, BT)
    b_key, m_key, b_start, b_next, m_begins, b_word = subwords_of(source + i_b * S, starts, o_s, S, PAD)
    b_token, m_token, b_token_start, b_token_next, _m_token_begins, b_token_word = subwords_of(
        target + i_b * T, starts + V, o_t, T, PAD
    )
    if i_word == 0:
        n_wrong = unspelled(m_key, b_start, b_next, LONE, SPECIAL)
        n_wrong += unspelled(m_token, b_token_start, b_token_next, LONE, SPECIAL)
        n_words = tl.minimum(tl.max(b_word, 0), tl.max(b_token_word, 0))
        tl.store(is_read + i_b, (n_wrong == 0) & (n_words > 0))

    m_rows = m_token & (b_token_word == i_word + 1)
    n_rows = tl.sum(m_rows.to(tl.int32), 0)
    if n_rows == 0:
        tl.store(best + i_b * T + i_word, -1)
        return
    first = tl.min(tl.where(m_rows, o_t, BT), 0)
    m_last = m_key & (b_next > 0)  # subwords that end a word: the sum of its weights stands there
    b_mean = tl.zeros([BS], dtype=tl.float32)
    for h in range(heads):
        row = weights + ((i_b * heads + h) * (T + 1) + first + SHIFT) * (S + 1)
        # in float64, as in PyTorch's way: the order of the sums leaves no trace in float32
        b_row = tl.zeros([BS], dtype=tl.float64)
        for i in range(n_rows):
            b_row += tl.load(row + i * (S + 1) + o_s, mask=m_key, other=0.0).to(tl.float64)
        b_sum, _m_begun = tl.associative_scan((b_row, m_begins), 0, add_within_word)
        b_weight = tl.where(m_last, b_sum / n_rows, 0.0).to(tl.float32)
        if SHARES:
            total = tl.sum(b_weight, 0)
            b_weight = b_weight / tl.where(total > 0.0, total, 1.0)
        b_mean += b_weight
    largest = tl.max(tl.where(m_last, b_mean, 0.0), 0)
    at = tl.min(tl.where(m_last & (b_mean == largest), o_s, BS), 0)
    word = tl.sum(tl.where(o_s == at, b_word, 0), 0)
    # a word is not linked to a punctuation mark
    same = has_letters(letters, b_key, m_key & (b_word == word)) == has_letters(letters + V, b_token, m_rows)
    tl.store(best + i_b * T + i_word, tl.where((largest > 0.0) & same, word - 1, -1))
