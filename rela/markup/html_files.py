"""HTML: inline tags move with their words, everything else stays where it is, byte for byte."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

from rela.markup.tokens import BREAK, CLOSE, OPEN, POINT, TEXT, Token

INLINE = frozenset([
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins",
    "label", "mark", "nobr", "q", "ruby", "rb", "rt", "rp", "s", "small", "span", "strike", "strong", "sub",
    "sup", "time", "tt", "u",
])  # fmt: skip
INLINE_POINTS = frozenset(["img", "wbr", "input", "embed"])
UNTOUCHED_INLINE = frozenset(["code", "kbd", "samp", "var", "math", "svg"])
UNTOUCHED = frozenset(
    ["script", "style", "pre", "textarea", "template", "noscript", "iframe", "canvas", "audio", "video"]
)
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_PARTS = ["tbody", "tfoot", "thead"]
ENDED_BY = {
    "p": frozenset([
        "address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl", "fieldset",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "main",
        "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "ul",
        "li", "dt", "dd", "td", "th", "tr", *_PARTS,
    ]),
    "li": frozenset(["li"]),
    "dt": frozenset(["dt", "dd"]),
    "dd": frozenset(["dt", "dd"]),
    "option": frozenset(["option", "optgroup"]),
    "optgroup": frozenset(["optgroup"]),
    "td": frozenset(["td", "th", "tr", *_PARTS]),
    "th": frozenset(["td", "th", "tr", *_PARTS]),
    "tr": frozenset(["tr", *_PARTS]),
    **dict.fromkeys(_PARTS, frozenset(_PARTS)),
}  # fmt: skip
"""Elements that need no end tag, and the opening tags that end them; the end of their parent does so too."""


def html_tokens(text: str) -> list[Token]:
    """The tokens of an HTML document or fragment; their raw slices are the text."""
    parser = Tokeniser()
    parser.feed(text)
    parser.close()
    lines = line_starts(text)
    found = [(lines[line - 1] + column, kind, name, length) for (line, column), kind, name, length in parser.events]
    tokens: list[Token] = []
    if found and found[0][0] > 0:
        tokens.append(Token(BREAK, text[: found[0][0]]))
    for (start, kind, name, length), (end, *_) in pairwise([*found, (len(text), "", "", 0)]):
        if end <= start:
            continue
        split = min(start + length, end) if kind == TEXT else end
        tokens.append(Token(kind, text[start:split], name))
        if split < end:  # something that the parser gave no event for
            tokens.append(Token(POINT, text[split:end]))
    return untouched_together(tokens)


def line_starts(text: str) -> list[int]:
    """Where each line begins, for a parser that counts them."""
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n":
            starts.append(index + 1)
    return starts


class Tokeniser(HTMLParser):
    """Notes where each construct begins, what it is, and how long a text is."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.events: list[tuple[tuple[int, int], str, str, int]] = []

    def parse_html_declaration(self, i: int) -> int:
        """As in a browser, <![ is a comment up to the next >, unless it begins CDATA; the parser would raise."""
        if self.rawdata.startswith("<![", i) and not self.rawdata.startswith("<![CDATA[", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def note(self, kind: str, name: str = "", length: int = 0) -> None:
        self.events.append((self.getpos(), kind, name, length))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        kept = (values.get("translate") or "").lower() == "no" or "notranslate" in (values.get("class") or "").split()
        if tag in VOID:
            self.note(POINT if tag in INLINE_POINTS else BREAK, tag)
        elif tag in UNTOUCHED or (kept and tag not in INLINE):
            self.note("keep-break", tag)
        elif tag in UNTOUCHED_INLINE or kept:
            self.note("keep-point", tag)
        else:
            self.note(OPEN if tag in INLINE else BREAK, tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(POINT if tag in INLINE_POINTS | INLINE | UNTOUCHED_INLINE else BREAK, tag)

    def handle_endtag(self, tag: str) -> None:
        self.note(CLOSE if tag in INLINE else "end", tag)

    def handle_data(self, data: str) -> None:
        self.note(TEXT, length=len(data))

    def handle_entityref(self, name: str) -> None:
        self.note(TEXT, length=len(name) + 2)

    def handle_charref(self, name: str) -> None:
        self.note(TEXT, length=len(name) + 3)

    def handle_comment(self, data: str) -> None:
        self.note(POINT)

    def handle_decl(self, decl: str) -> None:
        self.note(BREAK)

    def handle_pi(self, data: str) -> None:
        self.note(BREAK)

    def unknown_decl(self, data: str) -> None:
        self.note(POINT)


def untouched_together(tokens: list[Token]) -> list[Token]:
    """The tokens with each element that is not translated made one, from its opening to its closing tag.

    One that never closes reaches to the end, as it does in a browser. Texts that follow one another are one.
    """
    merged: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = at + 1
        if token.kind.startswith("keep"):
            end = end_of_element(tokens, at)
            kind = POINT if token.kind == "keep-point" else BREAK
            token = Token(kind, "".join(part.raw for part in tokens[at:end]))
        elif token.kind == "end":
            token = Token(BREAK, token.raw)
        if merged and token.kind == TEXT == merged[-1].kind:
            merged[-1] = Token(TEXT, merged[-1].raw + token.raw)
        else:
            merged.append(token)
        at = end
    return merged


def end_of_element(tokens: list[Token], start: int) -> int:
    """Where the element whose opening tag is at `start` ends: behind its end tag, or before what ends it without."""
    element = tokens[start].name
    inside = OpenElements()
    inside.open(element)
    for at in range(start + 1, len(tokens)):
        kind, name = tokens[at].kind, tokens[at].name
        if kind in (CLOSE, "end"):
            if inside.count[name]:
                inside.close(name)
                if not inside.names:
                    return at + 1
            elif element in ENDED_BY and kind == "end" and name != "p":  # its parent's; </p> alone is an empty one
                return at
            continue
        while inside.blocks and name in ENDED_BY.get(inside.blocks[-1], ()):
            inside.close(inside.blocks[-1])
        if not inside.names:
            return at
        if name and name not in VOID and kind != POINT:
            inside.open(name)
    return len(tokens)


class OpenElements:
    """The elements that are open at a point of the document, the innermost last; no call goes through all of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.blocks: list[str] = []
        self.count: Counter[str] = Counter()

    def open(self, name: str) -> None:
        self.names.append(name)
        self.count[name] += 1
        if name not in INLINE:
            self.blocks.append(name)

    def close(self, name: str) -> None:
        """Close the innermost element of this name, and all inside it."""
        closed = ""
        while closed != name:
            closed = self.names.pop()
            self.count[closed] -= 1
            if closed not in INLINE:
                self.blocks.pop()
