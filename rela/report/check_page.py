"""A page of checked sentence pairs: the worst first, words without a counterpart marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from pathlib import Path

from rela.filtering.check import PairCheck, WordCheck
from rela.filtering.outputs import whole_file
from rela.report.web_page import escape, page, paragraph

SHOWN = 200
"""Pairs on a page."""
BAD = ("warn", "notice")
MARK = '<mark title="{title}">{word}</mark>'


def worst_first(checks: Iterable[PairCheck], count: int = SHOWN) -> list[PairCheck]:
    """The pairs of the highest scores, after them those that are "ok" although they look like copies, such as numbers.

    Only so many are held at once.
    """
    scored = (check for check in checks if check.score is not None)
    return nlargest(count, scored, key=lambda check: (check.verdict in BAD, check.score, -check.line))


def write_check_page(path: str | Path, worst: Sequence[PairCheck], pairs: int, flagged: int, how: str) -> None:
    """Write the page; `how` says in a sentence where scores and thresholds come from."""
    parts = [
        paragraph(
            f"{pairs:,} pairs were checked, {flagged:,} of them are worse than 99 % of trusted pairs. Below are the "
            f"{len(worst):,} worst ones. {how} Marked words: in the target, words without a source; in the "
            "source, words that were left untranslated; each more so than 99 % of trusted words."
        ),
        '<div class="wide"><table><thead><tr><th class="number">line</th><th class="number">score</th><th>verdict</th>',
        '<th class="number">log-prob</th><th class="number">null rate</th><th>source and target</th></tr></thead>',
        "<tbody>",
        *(row(check) for check in worst),
        "</tbody></table></div>",
    ]
    with whole_file(path) as file:
        file.write(page("Checked sentence pairs", parts).encode())


def row(check: PairCheck) -> str:
    """One pair as a row of the table."""
    figures = [f'<td class="number">{check.line}</td>', f'<td class="number">{check.score:.4f}</td>']
    figures.append(f"<td>{escape(check.verdict)}</td>")
    figures += [f'<td class="number">{value:.3f}</td>' for value in (check.log_prob or 0.0, check.null_rate or 0.0)]
    text = f"{marked(check.source_words or [])}<br/>{marked(check.target_words or [])}"
    return f'<tr>{"".join(figures)}<td class="text">{text}</td></tr>'


def marked(words: Sequence[WordCheck]) -> str:
    """The words of one side, flagged ones marked."""
    return " ".join(one_word(word) for word in words)


def one_word(word: WordCheck) -> str:
    """A word as HTML, marked where it is flagged."""
    if not word.flagged:
        return escape(word.word)
    values = {"nats lacking": word.lacking, "link": word.link, "null rate": word.null, "attention": word.attention}
    title = ", ".join(f"{name} {value:.2f}" for name, value in values.items() if value is not None)
    return MARK.format(title=escape(title), word=escape(word.word))
