"""Message catalogues of gettext (.po): messages without a translation get one, all else stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rela.markup.entities import add_plain
from rela.markup.plain_files import plain_tokens
from rela.markup.tokens import Block, Document, parts_of

FIELD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s+(".*")\s*$')
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

    A plural form of number 0 is translated from the singular, the others from the plural.
    """
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
        singular = item.keyword in ("msgstr", "msgstr[0]")
        source = messages.get("msgid" if singular else "msgid_plural", "")
        if item.keyword.startswith("msgstr") and not item.text and messages.get("msgid"):
            first, ending = item.lines[0], item.lines[-1][len(item.lines[-1].rstrip("\r\n")) :]
            indent = first[: len(first) - len(first.lstrip())]
            blocks += [
                f"{indent}{item.keyword} ",
                Block(list(parts_of(plain_tokens(source), add_plain)), quoted),
                ending,
            ]
        else:
            blocks += item.lines
    return Document(blocks)


def read_items(text: str) -> Iterator[str | Field]:
    """Fields with their continued lines, and all other lines."""
    current: Field | None = None
    for number, line in enumerate(text.splitlines(keepends=True), 1):
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


def quoted(text: str) -> str:
    """A text as a quoted string, one line for each of its own."""
    written = text.replace("\\", "\\\\").replace('"', '\\"')
    for name, character in ESCAPES.items():
        if name.isalpha():
            written = written.replace(character, "\\" + name)
    lines = [line for line in re.split(r"(?<=(?<!\\)\\n)", written) if line]
    if len(lines) < 2:
        return f'"{written}"'
    return '""\n' + "\n".join(f'"{line}"' for line in lines)
