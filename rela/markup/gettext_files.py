"""Message catalogues of gettext (.po): messages without a translation get one, all else stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rela.markup.entities import add_markdown
from rela.markup.html_files import html_tokens
from rela.markup.plain_files import plain_tokens
from rela.markup.tokens import BREAK, CLOSE, OPEN, POINT, TEXT, Block, Document, Token, parts_of, split_lines

FIELD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s+(".*")\s*$')
ONE_FORM = re.compile(r"^\"Plural-Forms:\s*nplurals\s*=\s*1\s*;", re.MULTILINE)
TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
BLOCKS = frozenset([
    "p", "br", "hr", "div", "ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "td", "th", "pre", "h1", "h2", "h3",
    "h4", "h5", "h6", "para",
])  # fmt: skip
# The key of a menu entry: "_Save", "Save _as", "&Save", and inside a word, "E_xit".
MNEMONIC = re.compile(r"(?<![\w&])[_&](?=[^\W\d_])|(?<=\b[A-Z])_(?=[a-z])|(?<=\b[A-Z][a-z])_(?=[a-z])")
CONTINUED = re.compile(r'\s*(".*")\s*$')
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Field:
    """A field of an entry: its keyword, its text, and the lines it was written on."""

    keyword: str
    text: str
    lines: list[str] = field(default_factory=list)


def gettext_document(text: str) -> Document:
    """The entries of a catalogue. The header, obsolete entries and messages that have a translation stay.

    A plural form of number 0 is translated from the singular, the others from the plural; in a language of one form
    that is from the plural too.
    """
    first_form = "msgid_plural" if ONE_FORM.search(text) else "msgid"
    blocks: list[str | Block] = []
    messages: dict[str, str] = {}
    for item in read_items(text):
        if isinstance(item, str):
            blocks.append(item)
            if not item.strip():
                messages = {}
            continue
        if item.keyword == "msgid":
            messages = {}
        messages.setdefault(item.keyword, item.text)
        form = {"msgstr": "msgid", "msgstr[0]": first_form}.get(item.keyword, "msgid_plural")
        source = messages.get(form, "")
        if item.keyword.startswith("msgstr") and not item.text and messages.get("msgid"):
            first, ending = item.lines[0], item.lines[-1][len(item.lines[-1].rstrip("\r\n")) :]
            indent = first[: len(first) - len(first.lstrip())]
            blocks += [f"{indent}{item.keyword} ", message_block(source, ending or "\n"), ending]
        else:
            blocks += item.lines
    return Document(blocks)


def message_block(source: str, newline: str) -> Block:
    """A message to translate: tags move with their words, the key of a menu entry goes to the first letter."""
    key = mnemonic(source)
    tokens = message_tokens(source.replace(key, "") if key else source)
    return Block(
        list(parts_of(tokens, add_markdown)),
        lambda text: quoted(re.sub(r"(?=[^\W\d_])", key, text, count=1) if key else text, newline),
    )


def mnemonic(text: str) -> str:
    """The character that marks the key of a menu entry, _ or &, or nothing; in text with other marks it is none."""
    found = MNEMONIC.search(text)
    if found is None or text.count(found.group()) > 1 or re.search(r"<|%\w|\{|&\w+;|://|@", text):
        return ""
    return found.group()


def message_tokens(text: str) -> list[Token]:
    """The tokens of a message. Any tag in it may be inline, as <guilabel> is, but for those of blocks."""
    tokens = []
    for line in plain_tokens(text):
        for token in html_tokens(line.raw) if line.kind == TEXT and "<" in line.raw else [line]:
            tag = TAG.fullmatch(token.raw) if token.kind == BREAK else None
            if tag is not None and tag[2].lower() not in BLOCKS:
                kind = POINT if tag[3] else CLOSE if tag[1] else OPEN
                token = Token(kind, token.raw, tag[2])
            tokens.append(token)
    return tokens


def read_items(text: str) -> Iterator[str | Field]:
    """Fields with their continued lines, and all other lines."""
    current: Field | None = None
    for number, line in enumerate(split_lines(text), 1):
        if current is not None and (match := CONTINUED.match(line)):
            current.text += unquoted(match[1], number)
            current.lines.append(line)
            continue
        if current is not None:
            yield current
            current = None
        if match := FIELD.match(line):
            current = Field(match[1], unquoted(match[2], number), [line])
        elif CONTINUED.match(line):
            raise ValueError(f"line {number}: {line.strip()!r} continues no message; wanted msgid or msgstr before it")
        else:
            yield line
    if current is not None:
        yield current


def unquoted(raw: str, number: int) -> str:
    """The text of a quoted string."""
    inside = raw[1:-1]
    if re.search(r'(?<!\\)(?:\\\\)*"', inside):
        raise ValueError(f'line {number}: {raw} has a quotation mark inside; wanted \\" there')
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match.group()), inside)


def quoted(text: str, newline: str = "\n") -> str:
    """A text as a quoted string, one line for each of its own."""
    written = text.replace("\\", "\\\\").replace('"', '\\"')
    for name, character in ESCAPES.items():
        if name.isalpha():
            written = written.replace(character, "\\" + name)
    lines = [line for line in re.split(r"(?<=(?<!\\)\\n)", written) if line]
    if len(lines) < 2:
        return f'"{written}"'
    return newline.join(['""', *(f'"{line}"' for line in lines)])
