"""XML of any kind: an element among words is inline and moves with them; all others stay where they are."""

from __future__ import annotations

from xml.parsers import expat

from rela.markup.html_files import untouched_together
from rela.markup.tokens import BREAK, CLOSE, OPEN, POINT, TEXT, Token

UNTOUCHED = frozenset(["script", "style", "code", "pre", "programlisting", "screen"])


class Element:
    """An element that is open: where its tokens are, and whether words stand directly in it."""

    def __init__(self, parent: Element | None) -> None:
        self.parent, self.has_words = parent, False
        self.known: bool | None = None

    @property
    def is_inline(self) -> bool:
        """Whether it, or an element around it, stands among words; asked when the whole document is read."""
        above: list[Element] = []
        element: Element | None = self
        while element is not None and element.known is None:
            above.append(element)
            element = element.parent
        known = element is not None and bool(element.known)
        for element in reversed(above):  # from the outside in
            known = known or (element.parent is not None and element.parent.has_words)
            element.known = known
        return bool(self.known)


def xml_tokens(text: str) -> list[Token]:
    """The tokens of an XML document; their raw slices are the text. A document that is not well-formed is an error."""
    parser = Tokeniser()
    data = text.encode("utf-8")
    try:
        parser.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(f"not well-formed XML: {error}") from None
    tokens: list[Token] = []
    ends = [*(start for start, *_ in parser.events[1:]), len(data)]
    if parser.events and parser.events[0][0] > 0:
        tokens.append(Token(BREAK, data[: parser.events[0][0]].decode("utf-8")))
    for (start, kind, name, element), end in zip(parser.events, ends, strict=True):
        raw = data[start:end].decode("utf-8")
        if not raw:  # <empty/> ends where it begins
            continue
        if kind == OPEN and raw.endswith("/>"):
            kind = POINT if element is not None and element.is_inline else BREAK
            name = ""  # it opens nothing
        elif kind == CLOSE and element is not None and not element.is_inline:
            kind = "end"
        elif kind == OPEN and element is not None and not element.is_inline:
            kind = BREAK
        elif kind.startswith("keep") and element is not None and not element.is_inline:
            kind = "keep-break"
        tokens.append(Token(kind, raw, name))
    return untouched_together(tokens)


class Tokeniser:
    """Notes at which byte each construct begins, what it is, and which element it belongs to."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str, str, Element | None]] = []
        self.open: list[Element] = []
        self.cdata = False
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartCdataSectionHandler = self.cdata_starts
        self.parser.EndCdataSectionHandler = self.cdata_ends
        self.parser.CommentHandler = lambda data: self.note(POINT)
        self.parser.ProcessingInstructionHandler = lambda target, data: self.note(POINT)
        # also keeps entities of the document's own from being expanded
        self.parser.DefaultHandler = self.other

    def note(self, kind: str, name: str = "", element: Element | None = None) -> None:
        self.events.append((self.parser.CurrentByteIndex, kind, name, element))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        element = Element(self.open[-1] if self.open else None)
        self.open.append(element)
        kept = name in UNTOUCHED or attributes.get("translate") == "no" or attributes.get("translatable") == "false"
        self.note("keep-point" if kept else OPEN, name, element)

    def end(self, name: str) -> None:
        self.note(CLOSE, name, self.open.pop())

    def characters(self, data: str) -> None:
        if self.cdata:
            return
        if data.strip() and self.open:
            self.open[-1].has_words = True
        self.note(TEXT)

    def cdata_starts(self) -> None:
        self.cdata = True
        self.note(POINT)

    def cdata_ends(self) -> None:
        self.cdata = False

    def other(self, data: str) -> None:
        if not self.cdata and self.open:
            self.note(TEXT if data.startswith("&") else POINT)
        elif not self.cdata:
            self.note(BREAK)
