"""Markdown: prose is translated, its markers, code, addresses and HTML blocks stay.

The lines of a paragraph become one line, which Markdown reads the same; breaks that Markdown shows stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rela.markup.tokens import BREAK, CLOSE, OPEN, POINT, TEXT, Token

FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
PREFIX = re.compile(r"\s*(?:(?:>\s?)+|(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?)+|\s{0,3}#{1,6}\s+|\s+")
NEW_BLOCK = re.compile(r"\s*(?:>|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s)|\s{0,3}(?:```|~~~)|\s*\|")
STAYS = re.compile(
    r"\s*(?:=+|-+|\*(?:\s*\*){2,}|_(?:\s*_){2,}|-(?:\s*-){2,})\s*$"  # underlines of headings, rules
    r"|\s{0,3}\[[^\]]+\]:\s"  # addresses of links
    r"|\s{0,3}</?[A-Za-z!][^>]*>?\s*$"  # a tag on a line of its own
)
TABLE = re.compile(r"\s*\|.*\|\s*$")
RULE_OF_TABLE = re.compile(r"\s*\|?[\s:|-]+\|[\s:|-]*$")
INLINE = re.compile(
    r"""
      (?P<code>(?P<ticks>`{1,9})(?!`).{0,2000}?(?<!`)(?P=ticks)(?!`))
    | (?P<image>!\[[^\]]*\](?:\([^()\s]*(?:\s+"[^"]*")?\)|\[[^\]]*\]))
    | (?P<address><(?:https?://|mailto:|[\w.+-]+@)[^<>\s]*>)
    | (?P<tag></?[A-Za-z][^<>]*>)
    | (?P<escaped>\\[\\`*_{}\[\]()\#+.!|~<>-])
    | \[(?P<label>[^\[\]]{1,2000})\](?P<goal>\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+"[^"]*")?\)|\[[^\]]*\])
    | (?P<marker>\*\*\*|\*\*|\*|___|__|~~|(?<!\w)_)(?=\S)(?P<stressed>.{1,2000}?)(?<=\S)(?P=marker)(?!\w)
    """,
    re.VERBOSE | re.DOTALL,
)


# Levels of stress and links within one another that are followed; the rest is text.
DEEPEST = 8


def markdown_tokens(text: str) -> list[Token]:
    """The tokens of a Markdown document."""
    lines = text.splitlines(keepends=True)
    front = front_matter(lines)
    blocks = Blocks()
    blocks.keep("".join(lines[:front]))
    for line in lines[front:]:
        blocks.add(line)
    blocks.end_paragraph()
    return [token for token in blocks.tokens if token.raw]


class Blocks:
    """Tells paragraphs, headings, items and tables from code and other lines that stay."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.paragraph: list[str] = []
        self.fence, self.after_blank = "", True

    def add(self, line: str) -> None:
        """Take the next line."""
        content = line.rstrip("\r\n")
        if self.fence:
            self.add_code(line)
        elif self.stays(line):
            self.keep(line)
        elif TABLE.match(content):
            self.end_paragraph()
            self.tokens += row_tokens(line)
        else:
            self.add_prose(line, content)

    def stays(self, line: str) -> bool:
        """Whether a line is no prose: blank, code, a rule, an address, a tag alone."""
        content = line.rstrip("\r\n")
        opened = FENCE.match(line)
        indented = self.after_blank and line.startswith(("    ", "\t")) and not NEW_BLOCK.match(line)
        blank = not content.strip()
        self.fence = opened[1] if opened else ""
        self.after_blank = blank or indented
        return bool(opened or self.after_blank or STAYS.match(content) or RULE_OF_TABLE.match(content))

    def add_code(self, line: str) -> None:
        """A line between fences, or the fence that ends them."""
        self.keep(line)
        closing = FENCE.match(line)
        if closing and closing[1].startswith(self.fence) and not line.strip().strip(self.fence[0]):
            self.fence = ""

    def add_prose(self, line: str, content: str) -> None:
        """Add a line to the current paragraph, or begin one."""
        if NEW_BLOCK.match(line):
            self.end_paragraph()
        if not self.paragraph and (prefix := PREFIX.match(line)):
            self.tokens.append(Token(BREAK, prefix.group()))
            line = line[prefix.end() :]
        self.paragraph.append(line)
        if content.endswith(("  ", "\\")) or content.lstrip().startswith("#"):
            self.end_paragraph()

    def keep(self, raw: str) -> None:
        self.end_paragraph()
        self.tokens.append(Token(BREAK, raw))

    def end_paragraph(self) -> None:
        """Turn the collected lines into tokens."""
        if self.paragraph:
            joined, ending = join_lines(self.paragraph)
            self.tokens += [*inline_tokens(joined), Token(BREAK, ending)]
            self.paragraph = []


def front_matter(lines: list[str]) -> int:
    """How many lines at the start are settings between two lines of ---."""
    if not lines or lines[0].strip() != "---":
        return 0
    return next((number + 1 for number in range(1, len(lines)) if lines[number].strip() in ("---", "...")), 0)


def join_lines(lines: list[str]) -> tuple[str, str]:
    """The lines of a paragraph as one, and what ends the last of them."""
    last = lines[-1]
    content = last.rstrip("\r\n").rstrip(" \\")
    parts = [line.strip() for line in lines[:-1]] + [content.strip() if lines[:-1] else content]
    return " ".join(parts), last[len(content) :]


def row_tokens(line: str) -> list[Token]:
    """The cells of a row of a table, each a passage."""
    tokens = []
    for part in re.split(r"((?<!\\)\||[\r\n]+)", line):
        tokens += [Token(BREAK, part)] if part == "|" or not part.strip() else inline_tokens(part)
    return tokens


def inline_tokens(text: str) -> list[Token]:
    """The tokens of a stretch of prose."""
    return list(find_inline(text, 0))


def find_inline(text: str, depth: int) -> Iterator[Token]:
    """The tokens of text with links, stress, code and images; nested up to DEEPEST."""
    at = 0
    for match in INLINE.finditer(text) if depth < DEEPEST else ():
        if match.start() > at:
            yield Token(TEXT, text[at : match.start()])
        at = match.end()
        if match["label"]:
            name = f"link {depth}"
            yield Token(OPEN, "[", name, if_empty=match.group() if is_plain(match["label"]) else None)
            yield from find_inline(match["label"], depth + 1)
            yield Token(CLOSE, "]" + match["goal"], name)
        elif match["marker"]:
            name = f"stress {depth}"
            yield Token(OPEN, match["marker"], name, if_empty="")
            yield from find_inline(match["stressed"], depth + 1)
            yield Token(CLOSE, match["marker"], name)
        elif match["tag"]:
            yield tag_token(match["tag"])
        else:
            yield Token(POINT, match.group())
    if at < len(text):
        yield Token(TEXT, text[at:])


def is_plain(label: str) -> bool:
    """Whether a link's text holds no markers or code of its own."""
    return INLINE.search(label) is None


def tag_token(raw: str) -> Token:
    """A tag of HTML among the words."""
    name = re.match(r"</?([A-Za-z][\w-]*)", raw)
    assert name is not None
    if raw.endswith("/>") or name[1].lower() in ("br", "img", "wbr"):
        return Token(POINT, raw)
    return Token(CLOSE if raw.startswith("</") else OPEN, raw, name[1].lower())
