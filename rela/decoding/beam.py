"""Beam search over an `Engine`; it knows no model. Greedy search is a beam of one."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rela.decoding.constraints import Constraints
from rela.decoding.engines.engine import Engine

# The largest values of a row are searched for in blocks of this many.
BLOCK = 128


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without </s>, its log-probability, and that divided by the length penalty."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)
    """[H, T, S]: cross attention weights of the steps that gave the tokens and </s>, where they were asked for."""
    links: Set[tuple[int, int]] | None = field(default=None, compare=False, repr=False)
    """(source word, target word), where the links of many translations were read at once."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that search treats apart: what a translation begins and ends with, and what is never in one."""

    bos: int
    eos: int
    banned: tuple[int, ...] = ()


def length_penalty(length: Tensor | int, alpha: float) -> Any:
    """((5 + length) / 6)^α, what Vaswani et al. divide a log-probability by; </s> counts as a token."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    max_lengths: Tensor,
    *,
    beam: int,
    special: SpecialTokens,
    alpha: float = 0.6,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """The best finished hypotheses of each source, best first, at most `beam` of them.

    `max_lengths` [B] limits each translation's tokens, </s> not counted; at the limit only </s> may follow. A sentence
    is done when no hypothesis that is still alive can beat the worst of its `beam` finished ones, whatever follows.
    Log-probabilities only fall, so log_prob / penalty(longest) bounds what a hypothesis can become. Sentences that are
    done leave the batch; the number of rows stays a multiple of the engine's `row_multiple`.
    """
    padding = padding_sentences(len(sources), beam, engine.row_multiple)
    state = engine.start(engine.encode(pad_batch(sources, padding)))
    search = Search(pad_lengths(max_lengths, padding), beam, special.eos, alpha, special.banned, constraints)
    tokens = torch.full((search.sentences * beam,), special.bos, dtype=torch.long, device=max_lengths.device)
    while True:
        log_probs, state = engine.step(tokens, state)
        rows = search.advance(log_probs)
        if bool(search.done.all()):
            return search.results()[: len(sources)]
        keep = search.keep_undone(engine.row_multiple)
        if keep is not None:
            rows = rows.view(-1, beam)[keep].flatten()
        state = engine.reorder(state, rows, keep)
        tokens = search.last_tokens()


def padding_sentences(sentences: int, beam: int, row_multiple: int) -> int:
    """How many more sentences make the number of rows, `beam` for each, a multiple of `row_multiple`."""
    return -sentences % (math.lcm(row_multiple, beam) // beam)


def pad_batch(items: Sequence[Any], padding: int) -> list[Any]:
    """The items and, as padding, the last one again `padding` times."""
    return [*items, *[items[-1]] * padding] if padding else list(items)


def pad_lengths(max_lengths: Tensor, padding: int) -> Tensor:
    """The same for a tensor [B]."""
    return torch.cat([max_lengths, max_lengths[-1:].expand(padding)])


class Search:
    """The alive and finished hypotheses of a batch; all tensors, so that a step is a handful of kernels."""

    def __init__(
        self,
        max_lengths: Tensor,
        beam: int,
        eos: int,
        alpha: float,
        banned: tuple[int, ...],
        constraints: Constraints | None = None,
    ) -> None:
        device, sentences = max_lengths.device, max_lengths.numel()
        self.beam, self.eos, self.alpha, self.banned = beam, eos, alpha, list(banned)
        self.constraints = constraints
        self.sentences = sentences
        self.max_lengths = max_lengths
        self.length = 0
        self.longest = int(max_lengths.max()) + 1 if sentences else 0
        # One is alive at first, so that the first step does not pick the same token `beam` times.
        self.alive = torch.full((sentences, beam), float("-inf"), device=device)
        self.alive[:, 0] = 0.0
        self.alive_tokens = torch.zeros(sentences, beam, self.longest, dtype=torch.long, device=device)
        self.finished = torch.full((sentences, beam), float("-inf"), device=device)  # scores, best first
        self.finished_log_probs = self.finished.clone()
        self.finished_lengths = torch.zeros(sentences, beam, dtype=torch.long, device=device)
        self.finished_tokens = torch.zeros_like(self.alive_tokens)
        self.done = torch.zeros(sentences, dtype=torch.bool, device=device)
        self.order = torch.arange(sentences, device=device)  # which sentence of the caller each one is
        self.collected: list[list[Hypothesis] | None] = [None] * sentences

    def advance(self, log_probs: Tensor) -> Tensor:
        """The row [R] that each hypothesis now alive continues, after a step with log-probabilities [R, V]."""
        log_probs[:, self.banned] = float("-inf")
        if self.constraints is not None:
            history = self.alive_tokens[..., : self.length].flatten(0, 1)
            sentences = self.order.repeat_interleave(self.beam).tolist()
            self.constraints.forbid(log_probs, history, sentences, self.eos)
        at_limit = self.length >= self.max_lengths
        if bool(at_limit.any()):
            no_word = at_limit.repeat_interleave(self.beam)[:, None] & (
                torch.arange(log_probs.size(-1), device=log_probs.device) != self.eos
            )
            log_probs = log_probs.masked_fill(no_word, float("-inf"))
        # 2 · beam candidates: even if `beam` of them end here, `beam` others stay alive. A beam of one follows the best
        # token alone, be it </s>: that is greedy search. No row has more candidates than are kept in all.
        candidates = 2 * self.beam if self.beam > 1 else 1
        best, token = largest(log_probs, min(candidates, log_probs.size(-1)))  # [R, candidates]
        width = best.size(-1)
        token = token.view(-1, self.beam * width)
        totals = (self.alive[..., None] + best.view(-1, self.beam, width)).flatten(1)
        # once more for a model of NaN, whose search must end too
        totals = totals.masked_fill(at_limit[:, None] & (token != self.eos), float("-inf"))
        best, index = totals.topk(min(candidates, totals.size(1)), dim=1)
        parent, token = index // width, token.gather(1, index)
        ends = token == self.eos
        self.length += 1
        self.finish(best.masked_fill(~ends, float("-inf")), parent)
        self.survive(best.masked_fill(ends, float("-inf")), parent, token)
        self.done = self.cannot_improve()
        base = torch.arange(self.alive.size(0), device=parent.device)[:, None] * self.beam
        return (base + self.parents).flatten()

    def finish(self, log_probs: Tensor, parent: Tensor) -> None:
        """Merge the candidates that ended into the finished ones and keep the best `beam` of each sentence."""
        scores = log_probs / length_penalty(self.length, self.alpha)
        pool = torch.cat([self.finished, scores], 1)
        self.finished, kept = pool.topk(self.beam, dim=1)
        self.finished_log_probs = torch.cat([self.finished_log_probs, log_probs], 1).gather(1, kept)
        new_lengths = torch.full_like(parent, self.length - 1)
        self.finished_lengths = torch.cat([self.finished_lengths, new_lengths], 1).gather(1, kept)
        ended_tokens = gather_beams(self.alive_tokens, parent)
        self.finished_tokens = gather_beams(torch.cat([self.finished_tokens, ended_tokens], 1), kept)

    def survive(self, log_probs: Tensor, parent: Tensor, token: Tensor) -> None:
        """Keep the best `beam` candidates that did not end."""
        self.alive, kept = log_probs.topk(self.beam, dim=1)
        self.parents = parent.gather(1, kept)
        self.alive_tokens = gather_beams(self.alive_tokens, self.parents)
        if self.length <= self.longest:
            self.alive_tokens[..., self.length - 1] = token.gather(1, kept)

    def cannot_improve(self) -> Tensor:
        """[B], True where the best hypothesis alive cannot beat the worst finished one any more."""
        bound: Tensor = self.alive[:, 0] / length_penalty(self.max_lengths + 1, self.alpha)
        return (self.finished[:, -1] >= bound) | torch.isneginf(self.alive[:, 0])

    def keep_undone(self, row_multiple: int) -> Tensor | None:
        """The indices of the sentences that stay when those that are done leave, or None if all stay.

        Where `row_multiple` wants more rows than the undone sentences have, done ones stay as padding.
        """
        undone = (~self.done).nonzero().flatten()
        padding = padding_sentences(undone.numel(), self.beam, row_multiple)
        if undone.numel() + padding >= self.alive.size(0):
            return None
        self.collect(self.done)
        keep = torch.cat([undone, self.done.nonzero().flatten()[:padding]])
        for name in (
            "alive",
            "alive_tokens",
            "finished",
            "finished_log_probs",
            "finished_lengths",
            "finished_tokens",
            "done",
            "order",
            "max_lengths",
            "parents",
        ):
            setattr(self, name, getattr(self, name)[keep])
        return keep

    def collect(self, which: Tensor) -> None:
        """Copy the finished hypotheses of some sentences to the host, those of each sentence once."""
        for index in which.nonzero().flatten().tolist():
            sentence = int(self.order[index])
            if self.collected[sentence] is None:
                self.collected[sentence] = self.hypotheses(index)

    def hypotheses(self, index: int) -> list[Hypothesis]:
        """The finished hypotheses of the sentence that is now at `index`."""
        scores, log_probs = self.finished[index].tolist(), self.finished_log_probs[index].tolist()
        found = []
        for i, length in enumerate(self.finished_lengths[index].tolist()):
            if scores[i] > float("-inf"):
                tokens = tuple(self.finished_tokens[index, i, :length].tolist())
                found.append(Hypothesis(tokens, log_probs[i], scores[i]))
        return found

    def last_tokens(self) -> Tensor:
        return self.alive_tokens[..., self.length - 1].flatten()

    def results(self) -> list[list[Hypothesis]]:
        self.collect(torch.ones_like(self.done))
        return [hypotheses or [] for hypotheses in self.collected]


def gather_beams(values: Tensor, index: Tensor) -> Tensor:
    """[B, Y, Z], the values [B, X, Z] at index [B, Y] along X."""
    return values.gather(1, index[..., None].expand(-1, -1, values.size(-1)))


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of values [R, V], largest first, and where they are.

    They lie in the `count` blocks with the largest maxima, and a maximum is much cheaper than a sort.
    """
    rows, width = values.shape
    blocks = width // BLOCK
    if blocks <= count:
        return values.topk(count, dim=1)
    table = values[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    block = table.amax(-1).topk(count, dim=1).indices  # [R, count]
    columns = (block[..., None] * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    rest = torch.arange(blocks * BLOCK, width, device=values.device).expand(rows, -1)
    columns = torch.cat([columns, rest], 1)
    best, index = values.gather(1, columns).topk(count, dim=1)
    return best, columns.gather(1, index)
