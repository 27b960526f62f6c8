"""Subtitles (.srt): numbers and times stay, the text of each cue is translated as a whole."""

from __future__ import annotations

import re

from rela.markup.entities import add_plain
from rela.markup.plain_files import tagged_tokens
from rela.markup.tokens import Block, Document, Part, parts_of, split_lines

TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+.*$")
TAG = re.compile(r"<[^<>]*>")
DASH = re.compile(r"\A\s*(?:[-–—]\s*)?")


def subtitle_document(text: str) -> Document:
    """The cues of a file. A cue of several lines is translated as one and broken into as many lines again; lines that
    begin with a dash are different speakers' and stay apart."""
    blocks: list[str | Block] = []
    cue: list[str] = []
    in_cue = False
    for line in [*split_lines(text), ""]:
        if in_cue and (not line.strip() or TIMES.match(line)):
            blocks += cue_blocks(cue)
            cue, in_cue = [], False
        if TIMES.match(line):
            in_cue = True
            blocks.append(line)
        elif in_cue:
            cue.append(line)
        else:
            blocks.append(line)
    return Document(blocks)


def cue_blocks(lines: list[str]) -> list[str | Block]:
    """The text of a cue."""
    if any(line.lstrip().startswith(("-", "–")) for line in lines[1:]):
        return [block for line in lines for block in cue_blocks([line])]
    if not lines:
        return []
    contents = [line.rstrip("\r\n") for line in lines]
    ending = lines[-1][len(contents[-1]) :]
    newline = lines[0][len(contents[0]) :]
    text = " ".join(contents)
    rest = DASH.sub("", text, count=1)
    dash = text.removesuffix(rest)
    parts: list[Part] = list(parts_of(tagged_tokens(rest), add_plain))
    return [dash, Block(parts, lambda text: break_lines(text, len(lines), newline)), ending]


def break_lines(text: str, count: int, newline: str) -> str:
    """A text as `count` lines of about equal length, broken at spaces outside tags."""
    hidden = [match.span() for match in TAG.finditer(text)]
    spaces = [
        index
        for index, character in enumerate(text)
        if character == " " and not any(start <= index < end for start, end in hidden)
    ]
    lines, at = [], 0
    for number in range(1, count):
        goal = len(text) * number / count
        choices = [index for index in spaces if index > at]
        if not choices:
            break
        index = min(choices, key=lambda index: abs(index - goal))
        lines.append(text[at:index])
        at = index + 1
    return newline.join([*lines, text[at:]])
