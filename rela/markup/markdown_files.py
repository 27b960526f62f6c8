"""Markdown: prose is translated, its markers, code, formulas, addresses and HTML blocks stay.

The lines of a paragraph become one line, which Markdown reads the same; breaks that Markdown shows stay.
"""

from __future__ import annotations

import re

from rela.markup.markdown_inline import find_labels, inline_tokens
from rela.markup.tokens import BREAK, TEXT, Token, split_lines

FENCE = re.compile(r"(?P<quote>(?:\s*>)*)(?P<indent>\s*)(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?P<ticks>```+(?!.*`)|~~~+)")
FOOTNOTE = r"\s{0,3}\[\^[^\]]+\]:\s+"
PREFIX = re.compile(
    r"\s*(?:(?:>\s?)+|(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?)+|\s{0,3}#{1,6}\s+|\s{0,3}:\s+"
    rf"|{FOOTNOTE}|\s+"
)
QUOTE = re.compile(r"\s*(?:>\s?)+")
ITEM = re.compile(rf"(\s*)(?:[-*+]|\d{{1,9}}[.)])\s+|{FOOTNOTE}|(\s*)(?:!!!|\?\?\?\+?)\s")
NEW_BLOCK = re.compile(rf"\s*(?:>|[-*+]\s|\d{{1,9}}[.)]\s|#{{1,6}}\s|:\s)|\s*(?:```|~~~)|\s*\||{FOOTNOTE}")
STAYS = re.compile(
    r"\s*(?:=+|-+|\*(?:\s*\*){2,}|_(?:\s*_){2,}|-(?:\s*-){2,})\s*$"  # underlines of headings, rules
    r"|\s{0,3}\[(?!\^)[^\]]+\]:\s"  # addresses of links
    r"|\s*</?[A-Za-z!][^>]*>?\s*$"  # a tag on a line of its own
    r"|\s*(?:!!!|\?\?\?\+?|:::|===)\s"  # directives of site builders
)
# What begins a block of several lines that stays, and what the last of them holds.
KEPT_BLOCKS = [
    (re.compile(r"\s*<!--"), "-->"),
    (re.compile(r"\s*<\?"), "?>"),
    *((re.compile(rf"\s*<{name}\b", re.IGNORECASE), f"</{name}>") for name in ("pre", "script", "style", "textarea")),
    (re.compile(r"\s*</?[A-Za-z][^<>]*$"), ">"),
    (re.compile(r"[\s>]*\$\$"), "$$"),
    (re.compile(r"[\s>]*\\\["), "\\]"),
]
TABLE = re.compile(r"\s*\|.*\|\s*$")
PIPE = re.compile(r"(?<!\\)\|")
RULE_OF_TABLE = re.compile(r"\s*\|?[\s:|-]+\|[\s:|-]*$")


def markdown_tokens(text: str) -> list[Token]:
    """The tokens of a Markdown document."""
    lines = split_lines(text)
    front = front_matter(lines)
    blocks = Blocks(find_labels(text))
    blocks.keep("".join(lines[:front]))
    for line in lines[front:]:
        blocks.add(line)
    blocks.end_paragraph()
    return [token for token in blocks.tokens if token.raw]


class Blocks:
    """Tells paragraphs, headings, items and tables from code and other lines that stay."""

    def __init__(self, labels: frozenset[str]) -> None:
        self.labels = labels
        self.tokens: list[Token] = []
        self.paragraph: list[str] = []
        self.written: list[str] = []  # the same lines, with the markers of quotes
        self.quote = ""
        self.fence: re.Match[str] | None = None
        self.until = ""
        self.after_blank, self.in_table, self.item_indent = True, False, 0

    def add(self, line: str) -> None:
        """Take the next line."""
        content = line.rstrip("\r\n")
        if self.fence is not None and left_container(self.fence, content):
            self.fence = None
        if self.fence is not None:
            self.add_code(line)
        elif self.until:
            self.keep(line)
            self.until = "" if self.until in line.lower() else self.until
        elif RULE_OF_TABLE.match(content):
            self.begin_table(line)
        elif self.stays(line, content):
            self.keep(line)
        elif TABLE.match(content) or (self.in_table and PIPE.search(content)):
            self.end_paragraph()
            self.add_row(line)
        else:
            self.add_prose(line, content)

    def stays(self, line: str, content: str) -> bool:
        """Whether a line is no prose: blank, code, a rule, an address, a tag alone; notes what it begins or ends."""
        blank = not content.strip()
        indent = len(content.expandtabs(4)) - len(content.expandtabs(4).lstrip())
        if not blank and not indent:
            self.item_indent = 0
        indented = self.after_blank and not blank and indent >= self.item_indent + 4 and not NEW_BLOCK.match(line)
        self.fence = FENCE.match(content)
        self.until = (
            "" if self.fence or indented else next((end for start, end in KEPT_BLOCKS if start.match(line)), "")
        )
        begins = bool(self.fence or self.until)
        if self.until in re.sub(r"^[\s>]*(?:\$\$|<\?|<!--|\\\[)", "", line).lower():
            self.until = ""
        if item := ITEM.match(line):
            self.item_indent = 4 if item[1] is None else len(item.group().expandtabs(4))
        self.after_blank = blank or indented
        self.in_table = self.in_table and not blank
        return begins or self.after_blank or STAYS.match(content) is not None

    def add_code(self, line: str) -> None:
        """A line between fences, or the fence that ends them."""
        self.keep(line)
        assert self.fence is not None
        ticks = self.fence["ticks"]
        written = line.strip().lstrip("> \t")
        if written.startswith(ticks) and not written.strip(ticks[0]):
            self.fence = None

    def begin_table(self, line: str) -> None:
        """The rule under the head of a table, which is the last line of a paragraph if it has no pipes around it."""
        head = self.paragraph.pop() if self.paragraph and PIPE.search(self.paragraph[-1]) else ""
        del self.written[len(self.paragraph) :]
        self.end_paragraph()
        if head:
            self.add_row(head)
        self.in_table, self.after_blank = True, False
        self.tokens.append(Token(BREAK, line))

    def add_row(self, line: str) -> None:
        """The cells of a row of a table, each a passage."""
        for part in re.split(r"((?<!\\)\||[\r\n]+)", line):
            stays = part == "|" or not part.strip()
            self.tokens += [Token(BREAK, part)] if stays else inline_tokens(part, self.labels)

    def add_prose(self, line: str, content: str) -> None:
        """Add a line to the current paragraph, or begin one."""
        quote = QUOTE.match(line)
        if quote and self.paragraph and quote.group().split() == self.quote.split():
            rest = line[quote.end() :]
            if rest.strip() and not NEW_BLOCK.match(rest) and not STAYS.match(rest):
                self.append(rest, line)
                return
        if NEW_BLOCK.match(line):
            self.end_paragraph()
        if not self.paragraph and (prefix := PREFIX.match(line)):
            self.tokens.append(Token(BREAK, prefix.group()))
            self.quote = quote.group() if quote and quote.end() == prefix.end() else ""
            line = line[prefix.end() :]
        self.append(line, line)
        if content.lstrip().startswith("#"):
            self.end_paragraph()

    def append(self, line: str, written: str) -> None:
        """Add a line to the paragraph, which a break that Markdown shows ends."""
        self.paragraph.append(line)
        self.written.append(written)
        if line.rstrip("\r\n").endswith(("  ", "\\")):
            self.end_paragraph()

    def keep(self, raw: str) -> None:
        self.end_paragraph()
        self.tokens.append(Token(BREAK, raw))

    def end_paragraph(self) -> None:
        """Turn the collected lines into tokens."""
        if self.paragraph:
            joined, ending = join_lines(self.paragraph)
            tokens = [*inline_tokens(joined, self.labels), Token(BREAK, ending)]
            has_words = any(token.kind == TEXT and any(map(str.isalpha, token.raw)) for token in tokens)
            self.tokens += tokens if has_words else [Token(BREAK, "".join(self.written))]
            self.paragraph, self.written = [], []


def left_container(fence: re.Match[str], content: str) -> bool:
    """Whether a line lies outside the quote or the item that a fence was opened in, which ends the code."""
    if fence["quote"]:
        return not content.lstrip().startswith(">")
    return len(fence["indent"].expandtabs(4)) >= 4 and bool(content.strip()) and not content[:1].isspace()


def front_matter(lines: list[str]) -> int:
    """How many lines at the start are settings between two lines of --- or of +++."""
    first = lines[0].strip() if lines else ""
    if first not in ("---", "+++"):
        return 0
    ends = ("---", "...") if first == "---" else ("+++",)
    return next((number + 1 for number in range(1, len(lines)) if lines[number].strip() in ends), 0)


def join_lines(lines: list[str]) -> tuple[str, str]:
    """The lines of a paragraph as one, and what ends the last of them."""
    last = lines[-1]
    content = last.rstrip("\r\n").rstrip(" \\")
    parts = [line.strip() for line in lines[:-1]] + [content.strip() if lines[:-1] else content]
    return " ".join(parts), last[len(content) :]
