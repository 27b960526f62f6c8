"""Word links while translating, read from the attention of the decode steps themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import Tensor

from rela.alignment.choose import Aligner, AlignmentChoice
from rela.analysis.capture import Encoded, capture_batch
from rela.analysis.record import END, AttentionRecord
from rela.analysis.words import words
from rela.data.subwords import joined
from rela.decoding.translate import Translator
from rela.evaluation.alignment import Link


class OnlineLinks:
    """The word links of translations, for `Translator.translate_nbest(…, links=OnlineLinks(translator))`.

    They are those of forced decoding of the same subwords. Where search cannot hand out its weights, as on a GPU, they
    come from forced decoding itself. Words are counted as `rela align` counts them: a no-break space is a part of one,
    unless `no_break_splits`, as for `str.split`.
    """

    def __init__(
        self, translator: Translator, choice: AlignmentChoice | None = None, no_break_splits: bool = False
    ) -> None:
        self.translator, self.no_break_splits = translator, no_break_splits
        aligner = Aligner(translator, choice)
        self.choice, self.chosen = aligner.choice, aligner.chosen
        self.kind = translator.config.model.attention_kinds["cross"]

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
        subwords = self.translator.subwords
        pieces = [tuple(subwords.source.pieces(source)), tuple(subwords.pieces(target))]
        if text and not self.no_break_splits:
            pieces[0] = joined(pieces[0], text)
        if attention is None:
            return written_words(self.forced(source, target, pieces), pieces[1])
        keys, queries = (*pieces[0], END), (*pieces[1], END)
        record = AttentionRecord(self.kind, "cross", attention[None], queries, keys)
        return written_words(dataclasses.replace(self.choice, layer=0).links(record), pieces[1])

    def forced(self, source: Sequence[int], target: Sequence[int], pieces: list[tuple[str, ...]]) -> frozenset[Link]:
        """The same by one more pass over the pair."""
        pair = Encoded(list(source), pieces[0]), Encoded(list(target), pieces[1])
        (records,) = capture_batch(self.translator, [pair], ("cross",))
        return self.choice.links(records["cross"])


def written_words(links: frozenset[Link], pieces: Sequence[str]) -> frozenset[Link]:
    """Links to the words of the target's text: search may find a lone ▁, which spells no word."""
    spelled = words(pieces)
    if all(spelled):
        return links
    number = {word: sum(map(bool, spelled[:word])) for word, text in enumerate(spelled) if text}
    return frozenset((source, number[target]) for source, target in links if target in number)
