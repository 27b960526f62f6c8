"""Sampling from an `Engine`, each sentence with random numbers of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rela.decoding.beam import Hypothesis, SpecialTokens, pad_batch, pad_lengths, padding_sentences
from rela.decoding.constraints import Constraints, likely
from rela.decoding.engines.engine import Engine


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn: from P^(1/temperature), of the `top_k` most probable, of those that hold `top_p`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def scores(self, log_probs: Tensor) -> Tensor:
        """What Gumbel noise is added to: log-probabilities [R, V] up to a constant, -inf for what is not drawn."""
        scores = log_probs / self.temperature
        return likely(scores, self.top_k, self.top_p) if self.top_k or self.top_p < 1.0 else scores


def sample(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    max_lengths: Tensor,
    *,
    samples: int,
    special: SpecialTokens,
    seeds: list[int],
    draw: Draw | None = None,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """`samples` independent translations of each source, most probable first.

    A token is drawn as the largest of log-probability / temperature plus Gumbel noise. The noise of a sentence comes
    from its own seed, so its samples do not depend on the sentences beside it.
    """
    padding = padding_sentences(len(sources), samples, engine.row_multiple)
    state = engine.start(engine.encode(pad_batch(sources, padding)))
    generators = [torch.Generator().manual_seed(seed) for seed in pad_batch(seeds, padding)]
    limits = pad_lengths(max_lengths, padding).repeat_interleave(samples)
    rows, device = limits.numel(), limits.device
    banned = torch.tensor(special.banned, dtype=torch.long, device=device)
    tokens = torch.full((rows,), special.bos, dtype=torch.long, device=device)
    totals = torch.zeros(rows, device=device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    drawn: list[Tensor] = []
    draw = Draw() if draw is None else draw
    sentences = pad_batch(range(len(sources)), padding)
    while not bool(done.all()):
        log_probs, state = engine.step(tokens, state)
        log_probs = log_probs.index_fill(1, banned, float("-inf"))
        if constraints is not None:
            history = torch.stack(drawn, 1) if drawn else tokens.new_zeros(rows, 0)
            constraints.forbid(log_probs, history, [s for s in sentences for _ in range(samples)], special.eos)
        noise = torch.cat([gumbel(samples, log_probs.size(-1), generator) for generator in generators]).to(device)
        tokens = (draw.scores(log_probs) + noise).argmax(-1)
        tokens = torch.where(done | (len(drawn) >= limits), special.eos, tokens)
        totals += torch.where(done, 0.0, log_probs.gather(1, tokens[:, None])[:, 0])
        done = done | (tokens == special.eos)
        drawn.append(tokens)
    found = [
        Hypothesis(tuple(row[: row.index(special.eos)]), total, total)
        for row, total in zip(torch.stack(drawn, 1).tolist(), totals.tolist(), strict=True)
    ]
    by_sentence = [found[b * samples : (b + 1) * samples] for b in range(len(sources))]
    return [sorted(group, key=lambda hypothesis: -hypothesis.score) for group in by_sentence]


def gumbel(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise [rows, columns], -log(-log u)."""
    return -torch.empty(rows, columns).exponential_(generator=generator).log()
