"""What stands in a line of Markdown: emphasis, links and tags move with their words; code, images and formulas stay."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rela.markup.tokens import CLOSE, OPEN, POINT, TEXT, Token

DESTINATION = r"""\((?:<[^<>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)"""
INLINE = re.compile(
    rf"""
      (?P<code>(?P<ticks>`{{1,9}})(?!`).{{0,2000}}?(?<!`)(?P=ticks)(?!`))
    | (?P<formula>\$\$[^$]{{1,2000}}\$\$|(?<![\w$\\])\$(?=[^\s$])[^$\n]{{0,500}}(?<=[^\s$\\])\$(?![\w$]))
    | (?P<linked_image>\[!\[[^\]]*\]{DESTINATION}\]{DESTINATION})
    | (?P<image>!\[[^\]]*\](?:{DESTINATION}|\[[^\]]*\]))
    | (?P<note>\[[\^!][^\]\s]{{1,99}}\])                       # [^1], [!NOTE]
    | (?P<comment><!--.{{0,2000}}?-->)
    | (?P<kept><(?P<element>code|kbd|samp|var)\b[^<>]*>.{{0,2000}}?</(?P=element)>)
    | (?P<address><(?:https?://|mailto:|[\w.+-]+@)[^<>\s]*>)
    | (?P<tag></?[A-Za-z][^<>]*>)
    | (?P<escaped>\\[\\`*_{{}}\[\]()\#+.!|~<>$-])
    | \[(?P<label>[^\[\]]{{1,2000}})\](?P<destination>{DESTINATION}|\[[^\]]*\]|)
    | (?P<marker>\*\*\*|\*\*|\*|___|__|~~|(?<!\w)_)(?=\S)(?P<emphasised>.{{1,2000}}?)(?<=\S)(?P=marker)(?!\w)
    """,
    re.VERBOSE | re.DOTALL,
)
LABEL = re.compile(r"^\s{0,3}\[(?!\^)([^\[\]]+)\]:\s", re.MULTILINE)


# Levels of emphasis and links within one another that are followed; the rest is text.
DEEPEST = 8


def find_labels(text: str) -> frozenset[str]:
    """The labels of links whose addresses stand apart: [label]: address."""
    return frozenset(normalised(match[1]) for match in LABEL.finditer(text))


def normalised(label: str) -> str:
    """A label as Markdown compares it."""
    return " ".join(label.split()).casefold()


def inline_tokens(text: str, labels: frozenset[str] = frozenset()) -> list[Token]:
    """The tokens of a stretch of prose, in a document with these labels of links."""
    return list(find_inline(text, labels, 0))


def find_matches(text: str, labels: frozenset[str]) -> Iterator[re.Match[str]]:
    """The matches of INLINE in a text, without brackets that are no link; what stands in those is looked at."""
    match = INLINE.search(text)
    while match is not None:
        is_link = match["destination"] not in ("", "[]") or normalised(match["label"]) in labels
        if is_link:
            yield match
        match = INLINE.search(text, match.end() if is_link else match.start() + 1)


def find_inline(text: str, labels: frozenset[str], depth: int) -> Iterator[Token]:
    """The tokens of text with links, emphasis, code and images; nested up to DEEPEST."""
    at = 0
    for match in find_matches(text, labels) if depth < DEEPEST else ():
        destination = match["destination"]
        if destination in ("", "[]"):  # the text is the label of an address: it is written behind the translated text
            destination = f"[{match['label']}]"
        if match.start() > at:
            yield Token(TEXT, text[at : match.start()])
        at = match.end()
        if match["label"]:
            name = f"link {depth}"
            yield Token(OPEN, "[", name, if_empty=match.group() if is_plain(match["label"]) else None)
            yield from find_inline(match["label"], labels, depth + 1)
            yield Token(CLOSE, f"]{destination}", name)
        elif match["marker"]:
            name = f"emphasis {depth}"
            yield Token(OPEN, match["marker"], name, if_empty="")
            yield from find_inline(match["emphasised"], labels, depth + 1)
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
