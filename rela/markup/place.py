"""Marks of a source put into its translation, by word links: every mark once, nothing crosses, no word is lost."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rela.evaluation.link_files import Link
from rela.markup.passages import Mark, Passage, all_marks

CLOSING = frozenset(".,;:!?)]}…%’”»")
"""What follows a word without a space."""
PAIRS = re.compile(r"""\"\"|''|``|\(\)|\[\]|“”|„“|«»|»«|‘’|‚‘""")
"""Quotation marks and brackets around nothing."""
WORD = re.compile(r"\S+")
Escape = Callable[[str], str]


@dataclass(frozen=True)
class Word:
    """Where a word of a text is, and its core: the word without the punctuation around it."""

    start: int
    end: int
    core_start: int
    core_end: int


def find_words(text: str) -> list[Word]:
    """The words of `text.split()`, with their positions."""
    found = []
    for match in WORD.finditer(text):
        start, end = match.span()
        inside = [position for position in range(start, end) if text[position].isalnum()]
        core = (inside[0], inside[-1] + 1) if inside else (start, end)
        found.append(Word(start, end, *core))
    return found


def place_marks(passage: Passage, target: str, links: Iterable[Link], escape: Escape = str) -> str:
    """The target text with the passage's marks: tags around the words that those inside them are linked to.

    `links` are (source word, target word), words as `str.split` counts them. The text is escaped, marks are not.
    """
    return Placing(passage.text, target, links, escape).write(passage.marks, 0, len(target))


class Placing:
    """Where the words of one passage went."""

    def __init__(self, source: str, target: str, links: Iterable[Link], escape: Escape) -> None:
        self.source, self.target, self.escape = source, target, escape
        self.source_words, self.target_words = find_words(source), find_words(target)
        self.source_starts = [word.start for word in self.source_words]
        self.source_ends = [word.end for word in self.source_words]
        self.core_ends = [word.core_end for word in self.source_words]
        self.linked: list[list[int]] = [[] for _ in self.source_words]
        self.sources: list[set[int]] = [set() for _ in self.target_words]
        for i, j in sorted(links):
            if i < len(self.source_words) and j < len(self.target_words):
                self.linked[i].append(j)
                self.sources[j].add(i)

    def write(self, marks: Sequence[Mark], start: int, end: int) -> str:
        """Target characters start … end with these marks among them.

        They come in the order of their positions; one that would reach into the next is cut, so that none cross.
        """
        places = [(self.place(mark), order, mark) for order, mark in enumerate(marks)]
        written, at = "", start
        for (first, last), _, mark in sorted(places, key=lambda item: (item[0], item[1])):
            first = min(max(first, at), end)
            last = min(max(last, first), end)
            written += self.escape(self.target[at:first])
            at = last
            if mark.is_word or (first == last and holds_text(mark)):
                written, at = self.write_word(mark, written, first, last, end)
            else:
                written += self.write_inside(mark, first, last)
        return written + self.escape(self.target[at:end])

    def write_inside(self, mark: Mark, first: int, last: int) -> str:
        """A mark around target characters first … last, or what stands in their place."""
        if mark.instead is not None:
            return mark.before + self.escape(mark.instead) + mark.after
        inside = self.write(mark.children, first, last)
        empty = first == last and mark.if_empty is not None
        return f"{mark.if_empty}{inside}" if empty else mark.before + inside + mark.after

    def spaces(self, mark: Mark) -> tuple[bool, bool]:
        """Whether a space stood before a mark, and behind it; a placeholder alone in a tag knows that for the tag."""
        inside = [mark, *all_marks(mark.children)]
        before = not mark.is_word and self.source[max(mark.start - 1, 0) : mark.start].isspace()
        after = not mark.is_word and self.source[mark.end : mark.end + 1].isspace()
        return (
            before or any(one.space_before for one in inside if one.start == mark.start),
            after or any(one.space_after for one in inside if one.end == mark.end),
        )

    def write_word(self, mark: Mark, written: str, first: int, last: int, end: int) -> tuple[str, int]:
        """The text so far with a placeholder or term behind it, set apart by spaces as it was, and where to go on."""
        covers = last > first
        space_before, space_after = self.spaces(mark)
        if space_before and written and not written[-1].isspace() and not covers:
            written += " "
        written += self.write_inside(mark, first, last)
        following = self.target[last : last + 1] if last < end else ""
        if mark.instead_of_space and following == " ":
            return written, last + 1
        tokenised = (
            self.source[mark.end :].lstrip().startswith(following)
        )  # a space stood before this mark of the source
        apart = following and not following.isspace() and (tokenised or following not in CLOSING)
        return written + (" " if space_after and apart and not covers else ""), last

    def place(self, mark: Mark) -> tuple[int, int]:
        """Target characters that a mark belongs around; a point has an empty range."""
        first_word = bisect_right(self.source_ends, mark.start)
        covered = range(first_word, max(first_word, bisect_left(self.source_starts, mark.end)))
        if not covered or not self.source[mark.start : mark.end].strip():
            at = self.point(mark)
            return at, at
        if len(covered) == len(self.source_words) and mark.instead is None:
            first, last = 0, len(self.target_words) - 1
        else:
            segment = self.segment(set(covered))
            if segment is None:
                at = self.point(mark)
                return at, at
            first, last = segment
        if not self.target_words:
            return 0, 0
        left, right = self.source_words[covered[0]], self.source_words[covered[-1]]
        start, end = self.target_words[first], self.target_words[last]
        inside_left = mark.start > left.start or mark.instead is not None
        inside_right = mark.end < right.end or mark.instead is not None
        if right.core_end == right.end and len(covered) < len(self.source_words):  # a comma that the target alone has
            inside_right = inside_right or set(self.target[end.core_end : end.end]) <= CLOSING
        first_place = self.within(mark.start, left, start)
        last_place = self.within(mark.end, right, end)
        return (
            first_place or (start.core_start if inside_left else start.start),
            last_place or (end.core_end if inside_right else end.end),
        )

    def within(self, place: int, source: Word, target: Word) -> int | None:
        """Where a place between letters of a source word is in a target word that is the same: H<sub>2</sub>O."""
        between = source.core_start < place < source.core_end
        cores = self.source[source.core_start : source.core_end], self.target[target.core_start : target.core_end]
        return target.core_start + place - source.core_start if between and cores[0] == cores[1] else None

    def segment(self, covered: set[int]) -> tuple[int, int] | None:
        """The run of target words that holds most words linked to the covered ones and fewest linked to others."""
        gains = [
            1.0 if sources & covered else -1.0 if sources else -0.1 for sources in self.sources
        ]  # a word that is linked to nothing may come along
        best, found, total, start = 0.0, None, 0.0, 0
        for j, gain in enumerate(gains):
            if total <= 0.0:
                total, start = 0.0, j
            total += gain
            if total > best:
                best, found = total, (start, j)
        return found

    def point(self, mark: Mark) -> int:
        """The position between target words for something between source words.

        It is before what the next word became, or behind what the word before became if it stands close to that; in
        proportion where neither is linked.
        """
        words = self.source_words
        before = range(bisect_right(self.core_ends, mark.start))
        after = range(bisect_left(self.source_starts, mark.end), len(words))
        close = mark.start > 0 and not self.source[mark.start - 1].isspace()
        if not self.target_words or (not after and not close):
            return len(self.target)
        if (inside := self.in_pair(mark)) is not None:
            return inside
        if not any(map(str.isalnum, self.source[mark.end :])) and (mark.is_word or holds_text(mark)):
            return self.before_punctuation(len("".join(self.source[mark.end :].split())))
        if not before:
            return 0 if mark.start == 0 else self.target_words[0].start
        for i in [*before[-1:], *after[:1]] if close else [*after[:1], *before[-1:]]:
            if self.linked[i]:
                if after and i == after[0]:
                    return self.target_words[self.linked[i][0]].start
                word = self.target_words[self.linked[i][-1]]
                return word.end if close and mark.start > words[i].core_end else word.core_end
        share = len(before) / len(words)
        return self.target_words[min(round(share * len(self.target_words)), len(self.target_words) - 1)].start

    def in_pair(self, mark: Mark) -> int | None:
        """The place between two quotation marks or brackets of the target, for what stood alone between such two."""
        around = [match.start() + 1 for match in PAIRS.finditer(self.source)]
        empty = [match.start() + 1 for match in PAIRS.finditer(self.target)]
        fits = mark.start in around and len(around) == len(empty)
        return empty[around.index(mark.start)] if fits else None

    def before_punctuation(self, count: int) -> int:
        """The position before the last `count` characters of the target, as far as they are punctuation."""
        at = len(self.target.rstrip())
        while count and at and not self.target[at - 1].isalnum() and not self.target[at - 1].isspace():
            at, count = at - 1, count - 1
        return at


def holds_text(mark: Mark) -> bool:
    """Whether something to read is written where a mark covers no word: a placeholder inside, or its own text."""
    return bool(mark.if_empty) or any(child.is_word or holds_text(child) for child in mark.children)
