"""Word links while translating, read from the attention of the decode steps themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.alignment.choose import Aligner, AlignmentChoice, mean_of_shares
from rela.analysis.capture import Encoded, capture_batch
from rela.analysis.links import best_source, links_of, matrix_links
from rela.analysis.record import END, AttentionRecord
from rela.analysis.words import words
from rela.data.subwords import BOS, EOS, PAD, UNK, WORD_START, Subwords, joined
from rela.decoding.translate import Translator
from rela.evaluation.alignment import Link

LONE_MARK, SPECIAL = 2, -1
SPECIAL_IDS = frozenset({PAD, UNK, BOS, EOS})


class OnlineLinks:
    """The word links of translations, for `Translator.translate_nbest(…, links=OnlineLinks(translator))`.

    They are those of forced decoding of the same subwords. Search on a GPU never forms the weights: there the
    translations of a batch go through the decoder once more, together. Words are counted as `rela align` counts them: a
    no-break space is a part of one, unless `no_break_splits`, as for `str.split`.
    """

    def __init__(
        self, translator: Translator, choice: AlignmentChoice | None = None, no_break_splits: bool = False
    ) -> None:
        self.translator, self.no_break_splits = translator, no_break_splits
        aligner = Aligner(translator, choice)
        self.choice, self.chosen = aligner.choice, aligner.chosen
        self.kind = translator.config.model.attention_kinds["cross"]
        self.word_starts = word_starts(translator.subwords.source), word_starts(translator.subwords)

    @property
    def layer(self) -> int:
        """The decoder layer to be watched."""
        return self.choice.layer

    def read(
        self, source: Sequence[int], target: Sequence[int], attention: Tensor | None, text: str = ""
    ) -> frozenset[Link]:
        """The links (source word, target word) of subword ids, from that layer's weights [H, T, S] or without them.

        `text` is that of the source, where it has no-break spaces.
        """
        if not source or not target:
            return frozenset()
        if attention is not None and not text and self.choice.heads is not None:
            starts = [starts[list(ids)] for starts, ids in zip(self.word_starts, (source, target), strict=True)]
            if all(map(spell_words, starts)):
                return plain_links(attention.numpy(), self.choice, starts[0], starts[1])
        subwords = self.translator.subwords
        pieces = [tuple(subwords.source.pieces(source)), tuple(subwords.pieces(target))]
        if text and not self.no_break_splits:
            pieces[0] = joined(pieces[0], text)
        if attention is None:
            return written_words(self.forced(source, target, pieces), pieces[1])
        keys, queries = (*pieces[0], END), (*pieces[1], END)
        record = AttentionRecord(self.kind, "cross", attention[None], queries, keys)
        return written_words(dataclasses.replace(self.choice, layer=0).links(record), pieces[1])

    def read_batch(
        self, pairs: Sequence[tuple[list[int], list[int]]], attention: Tensor
    ) -> list[frozenset[Link] | None]:
        """The links of many pairs from weights [B, H, T, S] on any device, where T and S count </s>.

        What `plain_links` gives for each; None where a subword belongs to no word.
        """
        S, T = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
        if S == 0 or T == 0:
            return [None] * len(pairs)
        sides = [
            word_numbers([pair[side] for pair in pairs], self.word_starts[side], width)
            for side, width in ((0, S), (1, T))
        ]
        (source_words, source_plain), (target_words, target_plain) = sides
        keys, queries = (torch.from_numpy(words).to(attention.device) for words in (source_words, target_words))
        rows = (attention[:, :, 1 : T + 1] if self.choice.shifted else attention[:, :, :T])[..., :S].double()
        if self.choice.heads is not None:
            rows = rows[:, list(self.choice.heads)]
        B, H = rows.shape[:2]
        # What is padding, on either side, counts to one word more, which is dropped.
        summed = rows.new_zeros(B, H, T, S + 1).scatter_add_(3, keys[:, None, None].expand(B, H, T, S), rows)
        merged = rows.new_zeros(B, H, T + 1, S + 1).scatter_add_(
            2, queries[:, None, :, None].expand(B, H, T, S + 1), summed
        )
        pieces = rows.new_zeros(B, T + 1).scatter_add_(1, queries, rows.new_ones(B, T)).clamp_min(1)
        words = (merged / pieces[:, None, :, None])[:, :, :T, :S].float()
        matrix = words.mean(dim=1) if self.choice.heads is None else mean_of_shares(words.transpose(0, 1))
        return [
            links_of(best) if plain else None
            for best, plain in zip(best_source(matrix).tolist(), (source_plain & target_plain).tolist(), strict=True)
        ]

    def forced(self, source: Sequence[int], target: Sequence[int], pieces: list[tuple[str, ...]]) -> frozenset[Link]:
        """The same by one more pass over the pair."""
        pair = Encoded(list(source), pieces[0]), Encoded(list(target), pieces[1])
        (records,) = capture_batch(self.translator, [pair], ("cross",))
        return self.choice.links(records["cross"])


def word_starts(subwords: Subwords) -> NDArray[np.int8]:
    """By id: 1 for a subword that begins a word, 0 for one that goes on with it, LONE_MARK for a ▁, else SPECIAL."""
    found = [
        SPECIAL if id in SPECIAL_IDS else LONE_MARK if piece == WORD_START else piece.startswith(WORD_START)
        for id, piece in enumerate(subwords.pieces(range(subwords.size)))
    ]
    return np.array(found, dtype=np.int8)


def spell_words(starts: NDArray[Any]) -> NDArray[np.bool_]:
    """[…], whether all subwords of `starts` […, T] belong to a word that has letters: a ▁ needs some behind it."""
    following = np.concatenate([starts[..., 1:], np.ones_like(starts[..., :1])], axis=-1)
    return np.asarray(((starts != SPECIAL) & ((starts != LONE_MARK) | (following == 0))).all(axis=-1))


def word_numbers(
    sentences: Sequence[Sequence[int]], starts: NDArray[np.int8], width: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """[B, width], the word that each subword belongs to, `width` for padding; [B], whether all belong to one."""
    lengths = np.array([len(ids) for ids in sentences])
    inside = np.arange(width) < lengths[:, None]
    found = np.ones((len(sentences), width), dtype=np.int64)
    found[inside] = starts[np.concatenate([np.asarray(ids, dtype=np.int64) for ids in sentences])]
    plain = spell_words(found) & (lengths > 0)
    found[:, 0] = 1
    numbers = (found > 0).cumsum(axis=1) - 1
    return np.where(inside, numbers, width), plain


def plain_links(
    attention: NDArray[np.float32], choice: AlignmentChoice, source_starts: NDArray[Any], target_starts: NDArray[Any]
) -> frozenset[Link]:
    """The links of weights [H, T + 1, S + 1] where every subword belongs to a word: what `choice.links` gives, faster.

    `starts` are not 0 where a word begins; what comes first begins one anyway.
    """
    rows = attention[list(choice.heads or ())][:, 1:] if choice.shifted else attention[list(choice.heads or ())][:, :-1]
    keys, queries = (np.union1d(np.flatnonzero(starts), 0) for starts in (source_starts, target_starts))
    summed = np.add.reduceat(rows[..., :-1], keys, axis=2, dtype=np.float64)
    merged = np.add.reduceat(summed, queries, axis=1) / np.diff(queries, append=len(target_starts))[:, None]
    return matrix_links(mean_of_shares(torch.from_numpy(merged.astype(np.float32))))


def written_words(links: frozenset[Link], pieces: Sequence[str]) -> frozenset[Link]:
    """Links to the words of the target's text: search may find a lone ▁, which spells no word."""
    spelled = words(pieces)
    if all(spelled):
        return links
    number = {word: sum(map(bool, spelled[:word])) for word, text in enumerate(spelled) if text}
    return frozenset((source, number[target]) for source, target in links if target in number)
