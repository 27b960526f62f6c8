"""From subwords to words: pieces are grouped by the SentencePiece mark, weights merged as Zenkel et al. (2019) do."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from rela.analysis.record import END, START, AttentionRecord
from rela.data.subwords import WORD_START

SPECIAL = frozenset({START, END, "<pad>"})
IN_WORDS = "-'’"


def word_index(pieces: Sequence[str]) -> tuple[int, ...]:
    """The number of the word each piece belongs to; <s>, </s> and <pad> are words of their own."""
    index: list[int] = []
    word = -1
    for position, piece in enumerate(pieces):
        after_special = position > 0 and pieces[position - 1] in SPECIAL
        if position == 0 or after_special or piece in SPECIAL or piece.startswith(WORD_START):
            word += 1
        index.append(word)
    return tuple(index)


def words(pieces: Sequence[str]) -> tuple[str, ...]:
    """The words that pieces spell: ▁inter view s </s> are `interviews` and `</s>`."""
    index = word_index(pieces)
    spelled = [""] * (index[-1] + 1 if index else 0)
    for word, piece in zip(index, pieces, strict=True):
        spelled[word] += piece.removeprefix(WORD_START)
    return tuple(spelled)


def punctuation_apart(pieces: Sequence[str]) -> tuple[str, ...]:
    """The same pieces, marked so that a punctuation mark is a word of its own: ▁law , → ▁law ▁,

    Hyphens and apostrophes stay in their words, <s> and </s> are left as they are.
    """
    marked: list[str] = []
    before = ""
    for piece in pieces:
        begins = not piece.startswith(WORD_START) and before != WORD_START and piece not in SPECIAL
        marked.append(WORD_START + piece if begins and (is_punctuation(piece) or is_punctuation(before)) else piece)
        before = piece
    return tuple(marked)


def is_punctuation(piece: str) -> bool:
    """Whether a piece has punctuation alone, apart from what joins the parts of a word.

    What begins with a combining mark, as many vowels of Hindi are, or with a joiner goes on with its word.
    """
    spelled = piece.removeprefix(WORD_START)
    begins = spelled.strip()[:1]  # behind a no-break space
    if not begins or unicodedata.category(begins)[0] not in "PS":
        return False
    return spelled not in IN_WORDS and not any(map(str.isalnum, spelled))


def merge_subwords(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> Tensor:
    """Word weights [..., T', S'] of subword weights [..., T, S] (Zenkel et al., 2019).

        W'[t', s'] = 1/|t'| · Σ_{t ∈ t'} Σ_{s ∈ s'} W[t, s]

    The weights of a word's pieces are summed on the side looked at (the source, in cross attention) and averaged on
    the side that looks (the target). A row that sums to one keeps doing so, and a word's weight is zero only if
    every piece's is.
    """
    indices = word_index(queries), word_index(keys)
    query_word, key_word = (torch.tensor(index, dtype=torch.long, device=weights.device) for index in indices)
    T, S = (index[-1] + 1 if index else 0 for index in indices)
    exact = weights.double()  # so that the order in which a GPU adds leaves no trace in the result
    summed = exact.new_zeros(*exact.shape[:-1], S).index_add_(-1, key_word, exact)
    summed = exact.new_zeros(*exact.shape[:-2], T, S).index_add_(-2, query_word, summed)
    pieces_a_word = torch.bincount(query_word, minlength=T)  # [T']
    return (summed / pieces_a_word[:, None]).to(torch.promote_types(weights.dtype, torch.float32))


def merge_record(record: AttentionRecord) -> AttentionRecord:
    """The same record over words; a word may look where any of its pieces may."""
    merged = merge_subwords(record.weights, record.queries, record.keys)
    mask = merge_subwords(record.allowed.float(), record.queries, record.keys) > 0
    return AttentionRecord(record.kind, record.type, merged, words(record.queries), words(record.keys), mask)
