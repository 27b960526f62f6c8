"""Sampling from a step function, each sentence with random numbers of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rela.decoding.beam import Hypothesis, Step


def sample(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    *,
    samples: int,
    bos: int,
    eos: int,
    seeds: list[int],
    temperature: float = 1.0,
    banned: tuple[int, ...] = (),
) -> list[list[Hypothesis]]:
    """`samples` independent translations of each sentence, most probable first.

    A draw is the largest of log-probability / temperature plus Gumbel noise. The noise of a sentence comes
    from its own seed, so its samples do not depend on the sentences beside it.
    """
    device, sentences = max_lengths.device, max_lengths.numel()
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    rows = sentences * samples
    limits = max_lengths.repeat_interleave(samples)
    tokens = torch.full((rows,), bos, dtype=torch.long, device=device)
    totals = torch.zeros(rows, device=device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    drawn: list[Tensor] = []
    while not bool(done.all()):
        log_probs, state = step(tokens, state)
        log_probs = log_probs.index_fill(1, torch.tensor(banned, dtype=torch.long, device=device), float("-inf"))
        noise = torch.cat([gumbel(samples, log_probs.size(-1), generator) for generator in generators]).to(device)
        tokens = (log_probs / temperature + noise).argmax(-1)
        tokens = torch.where(done | (len(drawn) >= limits), eos, tokens)
        totals += torch.where(done, 0.0, log_probs.gather(1, tokens[:, None])[:, 0])
        done = done | (tokens == eos)
        drawn.append(tokens)
    table = torch.stack(drawn, 1).tolist()
    answers = []
    for sentence in range(sentences):
        group = []
        for row in range(sentence * samples, (sentence + 1) * samples):
            words = table[row][: table[row].index(eos)]
            group.append(Hypothesis(tuple(words), float(totals[row]), float(totals[row])))
        answers.append(sorted(group, key=lambda hypothesis: -hypothesis.score))
    return answers


def gumbel(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, -log(-log u)."""
    return -torch.empty(rows, columns).exponential_(generator=generator).log()
