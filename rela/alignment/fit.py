"""Training an aligner on a frozen model, from the links its own heads draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from rela.alignment.agreement import usable
from rela.alignment.choose import Aligner
from rela.alignment.corpus import symmetrise_matrices, turn, two_matrices
from rela.alignment.fitted import FittedAligner, LinkModule, batches_of, decoder_states
from rela.analysis.capture import Encoded, encode
from rela.analysis.words import word_index
from rela.decoding.translate import Translator
from rela.evaluation.alignment import Link
from rela.progress import Progress

TRAIN_PAIRS = 20_000
STEPS = 2000
BATCH_TOKENS = {"cpu": 512, "cuda": 8192}
LEARNING_RATE = 2e-3
HELD_OUT = 0.05
"""Share of the pairs, at least one, on which the layer is chosen."""
LINKS = "product"
"""The links to learn from: those of the two directions, or of one model's rows and columns, symmetrised so."""


@dataclass(frozen=True)
class Fit:
    """A trained aligner and what it was trained on."""

    aligner: FittedAligner
    losses: tuple[float, ...]
    """On held-out pairs, after the embedding and after each decoder layer: nats a target subword."""


def fit(
    forward: Aligner,
    pairs: Iterable[tuple[str, str]],
    backward: Aligner | None = None,
    *,
    limit: int = TRAIN_PAIRS,
    steps: int = STEPS,
    links: str = LINKS,
    seed: int = 1,
    progress: Progress | None = None,
) -> list[Fit]:
    """A trained aligner for `forward`, and one for `backward` if it is given; pairs are written as for `forward`.

    The links of the heads are computed once, then learnt. A target word that no direction links is to give all its
    probability to </s>; one that is linked only in the links that symmetrising left out is not learnt from.
    """
    models = [aligner.translator for aligner in (forward, backward) if aligner is not None]
    sample = usable(pairs, models, limit)
    if len(sample) < 2:
        raise ValueError("there is one pair to train an aligner on; wanted at least two")
    taken, offered = [], []
    for one, other in two_matrices(forward, sample, backward):
        taken.append(symmetrise_matrices(one, other, links))
        offered.append(symmetrise_matrices(one, other, "union"))
    if not any(taken):
        raise ValueError("the heads of the model draw no links that an aligner could learn")
    fits = [train_module(forward.translator, sample, taken, offered, forward.tokenised, steps, seed, progress)]
    if backward is not None:
        turned = [(target, source) for source, target in sample]
        taken, offered = list(map(turn, taken)), list(map(turn, offered))
        fits.append(
            train_module(backward.translator, turned, taken, offered, backward.tokenised, steps, seed, progress)
        )
    return fits


def train_module(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    taken: Sequence[frozenset[Link]],
    offered: Sequence[frozenset[Link]],
    tokenised: bool,
    steps: int,
    seed: int,
    progress: Progress | None,
) -> Fit:
    """The trained aligner of one model: a module for every layer is trained at once, and the best one kept."""
    encoded = [encode(translator, source, target, tokenised) for source, target in pairs]
    targets = [targets_of(*sides, *links) for sides, *links in zip(encoded, taken, offered, strict=True)]
    order = list(range(len(pairs)))
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
        # 0 · log 0 is 0 here: what is outside a sentence is not wanted
        lost = [-(wanted * found.where(wanted > 0, 0.0)).sum() / counted.sum().clamp_min(1) for found in each]
        return torch.stack(lost)

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
        if progress is not None:
            progress("fitting the aligner", step + 1, steps)
    with torch.no_grad():
        means = torch.stack([losses(part) * len(part) for part in batches(held)]).sum(0) / len(held)
    layer = int(means.argmin())
    aligner = FittedAligner(translator, modules[layer], layer, tokenised)
    return Fit(aligner, tuple(means.tolist()))


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
