"""Word links while translating, read from the attention of the decode steps themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from rela.alignment.choose import Aligner, AlignmentChoice, mean_of_shares
from rela.alignment.punctuation import is_mark, same_sort
from rela.analysis.capture import Encoded, capture_batch
from rela.analysis.links import NO_LINK, best_source, matrix_links
from rela.analysis.record import END, AttentionRecord
from rela.analysis.words import words
from rela.data.subwords import BOS, EOS, PAD, UNK, WORD_START, Subwords, joined
from rela.decoding.translate import Translator
from rela.device import triton_serves
from rela.evaluation.alignment import Link

LONE_MARK, SPECIAL = 2, -1
SPECIAL_IDS = frozenset({PAD, UNK, BOS, EOS})


class OnlineLinks:
    """The word links of translations, for `Translator.translate_nbest(…, links=OnlineLinks(translator))`.

    They are those of forced decoding of the same subwords, in the precision of the search. Words are counted as
    `rela align` counts them: a no-break space is a part of one, unless `no_break_splits`, as for `str.split`.
    """

    def __init__(
        self, translator: Translator, choice: AlignmentChoice | None = None, no_break_splits: bool = False
    ) -> None:
        self.translator, self.no_break_splits = translator, no_break_splits
        aligner = Aligner(translator, choice)
        self.choice, self.chosen = aligner.choice, aligner.chosen
        self.kind = translator.config.model.attention_kinds["cross"]
        self.word_starts = word_starts(translator.subwords.source), word_starts(translator.subwords)
        self.letters = with_letters(translator.subwords.source), with_letters(translator.subwords)
        self.marks = marks_of(translator.subwords.source), marks_of(translator.subwords)
        self.tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @property
    def layer(self) -> int:
        """The decoder layer to be watched."""
        return self.choice.layer

    @property
    def heads(self) -> tuple[int, ...] | None:
        """The heads whose weights `read_batch` takes; None for all."""
        return self.choice.heads

    def read(
        self, source: Sequence[int], target: Sequence[int], attention: Tensor | None, text: str = ""
    ) -> frozenset[Link]:
        """The links (source word, target word) of subword ids, from that layer's weights [H, T, S] or without them.

        `text` is that of the source, where it has no-break spaces. No word is linked to a punctuation mark.
        """
        if not source or not target:
            return frozenset()
        found = self.all_links(source, target, attention, text)
        if all(marks.isdisjoint(ids) for marks, ids in zip(self.marks, (source, target), strict=True)):
            return found  # as nearly always: punctuation follows its word without a space
        pieces = self.pieces(source, target, text)
        return same_sort(found, words(pieces[0]), [word for word in words(pieces[1]) if word])

    def all_links(
        self, source: Sequence[int], target: Sequence[int], attention: Tensor | None, text: str
    ) -> frozenset[Link]:
        """What `read` gives, and links of a word and a punctuation mark."""
        if attention is not None and not text and self.choice.heads is not None:
            starts = [starts[list(ids)] for starts, ids in zip(self.word_starts, (source, target), strict=True)]
            if all(map(spell_words, starts)):
                return plain_links(attention.numpy(), self.choice, starts[0], starts[1])
        pieces = self.pieces(source, target, text)
        if attention is None:
            return written_words(self.forced(source, target, pieces), pieces[1])
        keys, queries = (*pieces[0], END), (*pieces[1], END)
        record = AttentionRecord(self.kind, "cross", attention[None], queries, keys)
        return written_words(dataclasses.replace(self.choice, layer=0).links(record), pieces[1])

    def pieces(self, source: Sequence[int], target: Sequence[int], text: str) -> list[tuple[str, ...]]:
        """The subwords of both sides, those of the source marked as its words are counted."""
        subwords = self.translator.subwords
        pieces = tuple(subwords.source.pieces(source))
        if text and not self.no_break_splits:
            pieces = joined(pieces, text)
        return [pieces, tuple(subwords.pieces(target))]

    def read_batch(self, source: Tensor, target: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
        """The best source word of each target word [B, T], or NO_LINK, and for which pairs that holds [B].

        Of ids [B, S] and [B, T] with PAD behind, and weights [B, heads, T + 1, S + 1] of `heads`, all on one device. It
        holds where every subword belongs to a word, and gives what `read` gives.
        """
        S, T = source.size(1), target.size(1)
        if 0 in (S, T):
            return torch.full_like(target, NO_LINK), torch.zeros_like(target, dtype=torch.bool).any(1)
        starts, letters = self.tables_on(attention.device)
        if triton_serves(attention):
            return self.by_kernel(source, target, attention, starts, letters)
        ids = torch.stack([pad(side, (0, max(S, T) - side.size(1)), value=PAD) for side in (source, target)])
        members, plain = word_members(ids, starts)
        keys, queries = members[0, :, None, :S, :S], members[1, :, None, :T, :T]
        rows = attention[:, :, 1:, :-1] if self.choice.shifted else attention[:, :, :-1, :-1]
        # [B, H, T', S']; in float64, so that the order in which a GPU adds leaves no trace in the result
        merged = queries.mT @ (rows.double() @ keys)
        words = (merged / queries.sum(2).clamp_min(1)[..., None]).float()
        matrix = words.mean(dim=1) if self.choice.heads is None else mean_of_shares(words.movedim(1, 0))
        best = best_source(matrix)
        # [2, B, words], whether a word has more than punctuation marks; a word is not linked to a mark
        written = letters.gather(1, ids.long().flatten(1)).view(*ids.shape, 1).double()
        spelled = (members.mT @ written).squeeze(-1) > 0
        same = spelled[1, :, :T] == spelled[0].gather(1, best.clamp_min(0).long())
        return best.where(same, NO_LINK), plain.all(0)

    def by_kernel(
        self, source: Tensor, target: Tensor, attention: Tensor, starts: Tensor, letters: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`read_batch` in one launch, instead of some sixty small ones."""
        from rela.kernels.search.word_links import best_source_words

        return best_source_words(
            source,
            target,
            attention.float(),
            starts,
            letters,
            shifted=self.choice.shifted,
            shares=self.choice.heads is not None,
            pad=PAD,
            lone=LONE_MARK,
            special=SPECIAL,
        )

    def tables_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`word_starts` and `with_letters` of both sides, [2, V] each, on a device, where they stay."""
        if device not in self.tables:
            starts, letters = (both_sides(one).to(device) for one in (self.word_starts, self.letters))
            self.tables[device] = starts, letters
        return self.tables[device]

    def forced(self, source: Sequence[int], target: Sequence[int], pieces: list[tuple[str, ...]]) -> frozenset[Link]:
        """The same by one more pass over the pair."""
        pair = Encoded(list(source), pieces[0]), Encoded(list(target), pieces[1])
        (records,) = capture_batch(self.translator, [pair], ("cross",))
        return self.choice.links(records["cross"])


def marks_of(subwords: Subwords) -> frozenset[int]:
    """The ids of subwords that begin a word and have punctuation marks alone."""
    pieces = subwords.pieces(range(subwords.size))
    return frozenset(id for id, piece in enumerate(pieces) if piece[:1] == WORD_START and is_mark(piece[1:]))


def with_letters(subwords: Subwords) -> NDArray[np.int8]:
    """By id: 1 for a subword that has more than punctuation marks, besides the ▁ at its beginning."""
    pieces = (piece.removeprefix(WORD_START) for piece in subwords.pieces(range(subwords.size)))
    return np.array([bool(piece) and not is_mark(piece) for piece in pieces], dtype=np.int8)


def both_sides(tables: tuple[NDArray[np.int8], NDArray[np.int8]]) -> Tensor:
    """Two tables by id as one tensor [2, V]; a vocabulary that has fewer ids is filled up."""
    longest = max(map(len, tables))
    return torch.from_numpy(np.stack([np.pad(one, (0, longest - len(one)), constant_values=SPECIAL) for one in tables]))


def word_starts(subwords: Subwords) -> NDArray[np.int8]:
    """By id: 1 for a subword that begins a word, 0 for one that goes on with it, LONE_MARK for a ▁, else SPECIAL."""
    found = [
        SPECIAL if id in SPECIAL_IDS else LONE_MARK if piece == WORD_START else piece.startswith(WORD_START)
        for id, piece in enumerate(subwords.pieces(range(subwords.size)))
    ]
    return np.array(found, dtype=np.int8)


def spell_words(starts: Any) -> Any:
    """[…], whether all subwords of `starts` […, T] belong to a word that has letters: a ▁ needs some behind it."""
    lone = starts == LONE_MARK
    ends_lone = lone[..., -1] | (lone[..., :-1] & (starts[..., 1:] != 0)).any(-1)
    return (starts != SPECIAL).all(-1) & ~ends_lone


def word_members(ids: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """[N, B, T, T] in float64, 1 where a subword (row) belongs to a word (column); [N, B], whether all belong to one.

    Of N sides with ids [N, B, T] and PAD behind, which belongs to no word; `starts` [N, V] are `word_starts` of each.
    """
    inside = ids != PAD
    found = starts.gather(1, ids.long().flatten(1)).view(ids.shape).where(inside, 1)
    plain = spell_words(found) & inside[..., 0]
    found[..., 0] = 1
    numbers = (found > 0).cumsum(dim=-1).where(inside, 0)
    columns = torch.arange(1, ids.size(-1) + 1, device=ids.device)
    return (numbers[..., None] == columns).double(), plain


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
