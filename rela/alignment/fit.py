"""Training an aligner on one frozen model, from the links its own heads draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from rela.alignment.agreement import usable
from rela.alignment.choose import Aligner
from rela.alignment.corpus import symmetrise_matrices
from rela.alignment.fitted import FittedAligner, LinkModule, batches_of, decoder_states
from rela.analysis.capture import Encoded, capture, encode
from rela.analysis.record import END, AttentionRecord
from rela.analysis.words import punctuation_apart, word_index
from rela.evaluation.alignment import Link
from rela.progress import Progress, no_progress

TRAIN_PAIRS = 20_000
STEPS = 2000
BATCH_TOKENS = {"cpu": 512, "cuda": 8192}
LEARNING_RATE = 2e-3
HELD_OUT = 0.05
"""Share of the pairs, at least one, on which the layer is chosen."""
LINKS = "product"
"""The links to learn from: those of the two directions, or of one model's rows and columns, symmetrised so."""
COMPUTING, FITTING = "computing links to learn from", "fitting the aligner"

Sides = tuple[Encoded, Encoded]
TakenOffered = tuple[frozenset[Link], frozenset[Link]]
"""The links that symmetrising took, and those of either direction."""


@dataclass(frozen=True)
class Fit:
    """A trained aligner and what it was trained on."""

    aligner: FittedAligner
    losses: tuple[float, ...]
    """On held-out pairs, after the embedding and after each decoder layer: nats a target subword."""


def fit(
    aligner: Aligner,
    pairs: Iterable[tuple[str, str]],
    *,
    limit: int = TRAIN_PAIRS,
    steps: int = STEPS,
    links: str = LINKS,
    seed: int = 1,
    progress: Progress = no_progress,
) -> Fit:
    """A trained aligner for one model.

    The links of the heads are computed once, then learnt. A target word that no direction links is to give all its
    probability to </s>; one that is linked only in the links that symmetrising left out is not learnt from.
    """
    sample = usable(pairs, [aligner.translator], limit)
    encoded, found = drawn_links(head_links(aligner, sample, links), len(sample), progress)
    return train_module(aligner, encoded, found, steps, seed, progress)


def drawn_links(
    drawn: Iterable[tuple[Sides, TakenOffered]], count: int, progress: Progress
) -> tuple[list[Sides], list[TakenOffered]]:
    """The sides and the links of `count` pairs, computed with progress; an error where nothing can be learnt."""
    if count < 2:
        raise ValueError("there is one pair to train an aligner on; wanted at least two")
    encoded, found = [], []
    for sides, links in drawn:
        encoded.append(sides)
        found.append(links)
        progress(COMPUTING, len(encoded), count)
    if not any(taken for taken, _ in found):
        raise ValueError("the heads draw no links that an aligner could learn")
    return encoded, found


def cross_entropy(found: Tensor, wanted: Tensor, counted: Tensor) -> Tensor:
    """Of log-probabilities [B, T, S] and the shares that are wanted, for each row that counts.

    0 · log 0 is 0 here: what is outside a sentence is not wanted.
    """
    return -(wanted * found.where(wanted > 0, 0.0)).sum() / counted.sum().clamp_min(1)


def head_links(aligner: Aligner, pairs: Sequence[tuple[str, str]], method: str) -> Iterator[tuple[Sides, TakenOffered]]:
    """For each pair its two sides, and the links of its rows and columns: those that are taken, and all.

    Punctuation marks are words of their own here, also where they are written at a word: gold links, and people, link
    them apart, and an aligner that learnt `law,` as one word would link the comma to the law.
    """
    records = capture(aligner.translator, pairs, ("cross",), tokenised=aligner.tokenised)
    for pair, record in zip(pairs, (found["cross"] for found in records), strict=True):
        queries, keys = punctuation_apart(record.queries[:-1]), punctuation_apart(record.keys[:-1])
        matrix = aligner.choice.word_matrix(with_pieces(record, queries, keys))
        source, target = encode(aligner.translator, *pair, aligner.tokenised)
        sides = dataclasses.replace(source, pieces=keys), dataclasses.replace(target, pieces=queries)
        yield sides, (symmetrise_matrices(matrix, matrix.T, method), symmetrise_matrices(matrix, matrix.T, "union"))


def with_pieces(record: AttentionRecord, queries: tuple[str, ...], keys: tuple[str, ...]) -> AttentionRecord:
    """The same record with its pieces marked otherwise."""
    return dataclasses.replace(record, queries=(*queries, END), keys=(*keys, END))


def train_module(
    aligner: Aligner, encoded: Sequence[Sides], links: Sequence[TakenOffered], steps: int, seed: int, progress: Progress
) -> Fit:
    """The trained aligner of one model: a module for every layer is trained at once, and the best one kept."""
    translator = aligner.translator
    targets = [targets_of(*sides, *found) for sides, found in zip(encoded, links, strict=True)]
    order = list(range(len(encoded)))
    random = Random(seed)
    random.shuffle(order)
    held = order[: max(1, round(HELD_OUT * len(order)))]
    learnt = order[len(held) :]
    shape = translator.config.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        modules = [LinkModule(shape.width).to(translator.device) for _ in range(shape.decoder_layers + 1)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE, betas=(0.9, 0.98))

    def losses(indices: Sequence[int]) -> Tensor:
        """[L + 1], the loss of every module on a batch."""
        batch = [encoded[i] for i in indices]
        with torch.no_grad():
            states, memory, inside = decoder_states(translator, batch)
        shape = states[0].size(1), inside.size(1)
        wanted, counted = batch_targets([targets[i] for i in indices], shape)
        wanted, counted = wanted.to(memory.device), counted.to(memory.device)
        each = [module(state, memory, inside) for module, state in zip(modules, states, strict=True)]
        return torch.stack([cross_entropy(found, wanted, counted) for found in each])

    def batches(indices: Sequence[int]) -> list[list[int]]:
        tokens = BATCH_TOKENS.get(translator.device.type, 512)
        return [[indices[i] for i in batch] for batch in batches_of([encoded[i] for i in indices], tokens)]

    waiting: list[list[int]] = []
    for step in range(steps):
        if not waiting:
            waiting = batches(learnt)
            random.shuffle(waiting)
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        optimiser.zero_grad(set_to_none=True)
        losses(waiting.pop()).sum().backward()
        optimiser.step()
        progress(FITTING, step + 1, steps)
    with torch.no_grad():
        means = torch.stack([losses(part) * len(part) for part in batches(held)]).sum(0) / len(held)
    layer = int(means.argmin())
    return Fit(FittedAligner(translator, modules[layer], layer, aligner.tokenised), tuple(means.tolist()))


class Targets(NamedTuple):
    """What is to be learnt of one pair: a share for each of some (target, source) subwords, and the rows that count."""

    rows: Tensor
    columns: Tensor
    shares: Tensor
    counted: Tensor


def targets_of(source: Encoded, target: Encoded, taken: frozenset[Link], offered: frozenset[Link]) -> Targets:
    """A distribution over source subwords for each target subword.

    A target word's subwords share out their probability evenly over the subwords of all source words it is linked to.
    """
    columns: dict[int, list[int]] = {}
    for position, word in enumerate(word_index(source.pieces)):
        columns.setdefault(word, []).append(position)
    of_word: dict[int, list[int]] = {}
    for s, t in sorted(taken):
        of_word.setdefault(t, []).extend(columns[s])
    left_out = {t for _, t in offered} - of_word.keys()
    found: list[tuple[int, int, float]] = []
    counted = []
    for row, word in enumerate(word_index(target.pieces)):
        if word in left_out:
            continue
        linked = of_word.get(word, [len(source.ids)])  # </s> for a word without a link
        found += [(row, column, 1 / len(linked)) for column in linked]
        counted.append(row)
    rows, across, shares = zip(*found, strict=True) if found else ((), (), ())
    long = torch.int64
    return Targets(
        torch.tensor(rows, dtype=long),
        torch.tensor(across, dtype=long),
        torch.tensor(shares),
        torch.tensor(counted, dtype=long),
    )


def batch_targets(parts: Sequence[Targets], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The targets of a batch, [B, T, S], and where they count, [B, T]; `shape` is (T, S), padding included."""
    wanted, counted = torch.zeros(len(parts), *shape), torch.zeros(len(parts), shape[0], dtype=torch.bool)
    pair = torch.arange(len(parts))
    of_shares = pair.repeat_interleave(torch.tensor([len(part.rows) for part in parts]))
    of_rows = pair.repeat_interleave(torch.tensor([len(part.counted) for part in parts]))
    rows, columns, shares, counts = (torch.cat(field) for field in zip(*parts, strict=True))
    wanted[of_shares, rows, columns] = shares
    counted[of_rows, counts] = True
    return wanted, counted
