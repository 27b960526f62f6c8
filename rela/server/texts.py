"""A text as its sentences and what stands between them: lines, white space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rela.markup.sentences import split_sentences


@dataclass(frozen=True)
class Layout:
    """text = gaps[0] + sentences[0] + gaps[1] + … + gaps[-1]"""

    sentences: list[str]
    gaps: list[str]

    @classmethod
    def of(cls, text: str) -> Layout:
        """A text cut line by line, and each line into its sentences; what holds no letter is none."""
        bounds, offset = [], 0
        for line in text.split("\n"):
            found = [bound for bound in split_sentences(line) if any(map(str.isalpha, line[slice(*bound)]))]
            bounds += [(offset + start, offset + end) for start, end in found]
            offset += len(line) + 1
        ends = [0, *(end for _, end in bounds)]
        starts = [*(start for start, _ in bounds), len(text)]
        gaps = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        return cls([text[start:end] for start, end in bounds], gaps)

    def fill(self, sentences: Sequence[str]) -> str:
        """The text with other sentences in place of its own."""
        parts = [part for pair in zip(self.gaps, sentences, strict=False) for part in pair]
        return "".join([*parts, self.gaps[-1]])
