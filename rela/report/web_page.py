"""Small static pages: text becomes HTML here and nowhere else, so that all of it is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

ABBREVIATIONS = {"aer": "AER", "aoh": "AoH", "aol": "AoL", "auroc": "AUROC"}
STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1a1a1a; --soft: #444; --line: #ddd; --code: #f4f4f4; \
--link: #00538a; --mark: #ffe08a; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12171c; --ink: #e3e9ee; --soft: #a9b5bf; --line: #2f3a44; --code: #1c242c; --link: #7cc4f0; \
--mark: #6b4a00; }
  img { filter: invert(.93) hue-rotate(180deg); } /* drawn on white; blue stays blue */
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 62rem; \
margin: 2rem auto; padding: 0 1rem; }
a { color: var(--link); } mark { background: var(--mark); color: inherit; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
nav { margin: 1.5rem 0; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 8px; }
nav ul { margin: .3rem 0 0; padding-left: 1.2rem; columns: 20rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; } thead th { border-bottom: 2px solid var(--soft); }
code, pre { background: var(--code); padding: .1rem .3rem; font-size: .85rem; }
pre { overflow-x: auto; padding: .6rem; }
.text { overflow-wrap: anywhere; unicode-bidi: plaintext; }
"""


def escape(text: Any) -> str:
    """Any text as text: markup is quoted, and characters that no page may hold are shown as �."""
    shown = "".join(letter if _allowed(letter) else "\N{REPLACEMENT CHARACTER}" for letter in str(text))
    return html.escape(shown)


def _allowed(letter: str) -> bool:
    code = ord(letter)
    return letter in "\t\n" or (
        code >= 0x20 and not 0x7F <= code <= 0x9F and not 0xD800 <= code <= 0xDFFF and code not in (0xFFFE, 0xFFFF)
    )


def page(title: str, body: Iterable[str]) -> str:
    """A whole page around parts that are HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """A heading that the contents can link to."""
    return f'<h{level} id="{anchor(text)}">{escape(text)}</h{level}>'


def anchor(text: str) -> str:
    """A heading's name in an address."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "part"


def contents(titles: Iterable[str]) -> str:
    """Links to the headings of a page."""
    items = "".join(f"<li>{link('#' + anchor(title), title)}</li>" for title in titles)
    return f'<nav aria-label="Contents">Contents<ul>{items}</ul></nav>'


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def command(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def picture(address: str, caption: str, print_version: str = "") -> str:
    """An image with its caption, which is also what a screen reader says."""
    more = f" {link(print_version, 'SVG')}" if print_version else ""
    return (
        f'<figure><img src="{escape(address)}" alt="{escape(caption)}"/>'
        f"<figcaption>{escape(caption)}{more}</figcaption></figure>"
    )


def table(
    rows: Sequence[dict[str, Any]],
    names: dict[str, str] | None = None,
    text: Iterable[str] = (),
    percent: Iterable[str] = (),
) -> str:
    """Rows as a table; `names` gives the columns better titles, `text` names the columns of running text.

    Fractions in the columns of `percent` are shown in per cent.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    titles = {column: (names or {}).get(column, title_of(column)) for column in columns}
    running, hundredths = set(text), set(percent)
    number = {c: all(isinstance(row.get(c, 0), (int, float)) for row in rows) for c in columns}

    def cell(tag: str, column: str, value: Any) -> str:
        kind = "number" if number[column] else "text" if column in running else ""
        written = f"{100 * value:.1f} %" if column in hundredths and isinstance(value, float) else shown(value)
        return f"<{tag}{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{escape(written)}</{tag}>"

    head = "".join(cell("th", column, titles[column]) for column in columns)
    lines = ["".join(cell("td", column, row.get(column, "")) for column in columns) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def title_of(column: str) -> str:
    """A column of a table in words: normal_aol becomes "normal AoL"."""
    return " ".join(ABBREVIATIONS.get(word, word) for word in column.split("_"))


def shown(value: Any) -> str:
    """A number as one reads it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
