"""What a translation must begin with, how long it must be, what it may not repeat: tokens are forbidden step by step.

Both beam search and sampling ask here before they choose; without constraints they never come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NEVER = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """Of B sentences: what each must begin with, and for all the least length and the n of n-grams not to repeat."""

    prefixes: Sequence[Sequence[int]] | None = None
    """The ids each translation begins with, without <s>; they count into its log-probability like any others."""
    min_length: int = 0
    """Tokens, </s> not counted."""
    no_repeat_ngram: int = 0
    """No n tokens come twice in this order; 0 allows all. A prefix may repeat what it likes."""

    @property
    def are_none(self) -> bool:
        return self.prefixes is None and self.min_length == 0 and self.no_repeat_ngram == 0

    def forbid(self, log_probs: Tensor, history: Tensor, sentences: Sequence[int], eos: int) -> None:
        """Set the log-probabilities [R, V] of tokens that may not follow the rows' tokens [R, t] to -inf, in place.

        `sentences` says which of the B sentences each row is of; padding behind the last is treated like the last.
        """
        length = history.size(1)
        forced: list[int | None] = [None] * len(sentences)
        if self.prefixes is not None:
            prefixes = [self.prefixes[min(sentence, len(self.prefixes) - 1)] for sentence in sentences]
            forced = [prefix[length] if length < len(prefix) else None for prefix in prefixes]
        rows = [row for row, token in enumerate(forced) if token is not None]
        given = [log_probs[row, token].clone() for row, token in enumerate(forced) if token is not None]
        if length < self.min_length:
            log_probs[:, eos] = NEVER
        if self.no_repeat_ngram:
            forbid_repetition(log_probs, history, self.no_repeat_ngram)
        for row, value in zip(rows, given, strict=True):
            log_probs[row] = NEVER
            log_probs[row, forced[row]] = value


def forbid_repetition(log_probs: Tensor, history: Tensor, n: int) -> None:
    """Set to -inf what would make the last n tokens of a row [R, t] the same as n tokens before."""
    if history.size(1) < n:
        return
    ngrams = history.unfold(1, n, 1)  # [R, t - n + 1, n]
    begun = history[:, history.size(1) - n + 1 :]  # [R, n - 1]: the next token would complete them
    again = (ngrams[..., :-1] == begun[:, None]).all(-1)  # [R, t - n + 1]
    row, position = again.nonzero(as_tuple=True)
    log_probs[row, ngrams[row, position, -1]] = NEVER


def likely(log_probs: Tensor, top_k: int, top_p: float) -> Tensor:
    """Log-probabilities [R, V] with -inf for all but the tokens that may be drawn.

    These are the `top_k` most probable (0: all), and of these the fewest that hold `top_p` of their probability; of
    equals the first in the vocabulary come first.
    """
    ordered, index = torch.sort(log_probs, stable=True, dim=-1, descending=True)
    if top_k:
        ordered = ordered.clone()
        ordered[:, top_k:] = NEVER
    if top_p < 1.0:
        probability = torch.softmax(ordered.double(), -1)
        before = probability.cumsum(-1) - probability  # what the more probable ones hold
        ordered = ordered.masked_fill(before >= top_p, NEVER)
    return torch.empty_like(ordered).scatter_(-1, index, ordered)
