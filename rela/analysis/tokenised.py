"""Tokenised text for a model of raw text: the spaces that a tokeniser added are not shown to the model.

The text of gold alignments is always tokenised. "the drug ( sic ) , then" reaches the model as
"the drug (sic), then", and each piece counts to the token it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rela.data.subwords import WORD_START

NO_SPACE_BEFORE = frozenset(",.;:!?)]}%…’”»") | {"..."}
NO_SPACE_AFTER = frozenset("([{¿¡„«")
CLOSED_BY = {'"': '"', "'": "'", "„": "“", "“": "”"}


def raw_text(tokens: Sequence[str]) -> str:
    """Tokens as they are written: punctuation and clitics ('s, n't) at their word, quotation marks at the quotation."""
    text = ""
    glued = True  # nothing stands before the first token
    awaited: set[str] = set()  # the marks that would close a quotation
    for token in tokens:
        closes = token in awaited
        clitic = len(token) > 1 and (token[0] in "'’" or token == "n't") and token[1:].isalpha()
        text += token if glued or closes or clitic or token in NO_SPACE_BEFORE else f" {token}"
        opens = token in CLOSED_BY and not closes
        awaited = awaited | {CLOSED_BY[token]} if opens else awaited - {token}
        glued = token in NO_SPACE_AFTER or opens
    return text


def pieces_by_token(pieces: Sequence[str], tokens: Sequence[str]) -> tuple[str, ...] | None:
    """The pieces of `raw_text(tokens)`, marked as the start of a word at each token's first piece and nowhere else.

    A piece belongs to the token in which it begins. None where the pieces do not spell the tokens letter by letter (the
    subword model normalises text), or a token begins in the middle of a piece.
    """
    *begins, letters = accumulate((len("".join(token.split())) for token in tokens), initial=0)
    starts_left, position, marked = set(begins), 0, []
    for piece in pieces:
        spelled = piece.removeprefix(WORD_START)
        marked.append(WORD_START + spelled if position in starts_left else spelled)
        starts_left.discard(position)
        position += len(spelled)
    return None if starts_left or position != letters else tuple(marked)
