"""Sentences of a paragraph, for models that translate one at a time."""

from __future__ import annotations

import re

END = re.compile(r"""([.!?…]+|[。！？])["'”’»)\]]*(\s+)(?=["'“„‘«(\[¿¡]*[^\W_a-zß-öø-ÿ])""")
ABBREVIATIONS = frozenset([
    "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "no", "nos", "vs", "etc", "e.g", "i.e", "cf", "al",
    "fig", "eq", "p", "pp", "vol", "ed", "approx", "dept", "inc", "ltd", "co", "bzw", "z.b", "d.h", "u.a",
    "usw", "nr", "hr", "fr", "str", "ca", "evtl", "ggf", "vgl", "bspw", "dipl", "ing", "mme", "mlle", "m", "art",
])  # fmt: skip


def split_sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text as (start, end), without the white space around them.

    One ends at . ! ? … before a space and a capital or a digit, unless what stands before the full stop is an
    abbreviation, a single letter or a number. A text without such a place is one sentence.
    """
    bounds, start = [], 0
    for match in END.finditer(text):
        last = text[start : match.start()].split()[-1:]
        word = last[0].lstrip("\"'“„‘«([").casefold() if last else ""
        initial = len(word) == 1 and word.isalpha()
        if match.group(1) == "." and (word in ABBREVIATIONS or initial or word.isdigit()):
            continue
        bounds.append((start, match.start(2)))
        start = match.end(2)
    bounds.append((start, len(text)))
    stripped = []
    for first, last_place in bounds:
        part = text[first:last_place]
        if part.strip():
            lead = len(part) - len(part.lstrip())
            stripped.append((first + lead, first + len(part.rstrip())))
    return stripped
