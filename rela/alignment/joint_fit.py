"""Training an aligner on the frozen encoders of two models, from the links that their heads draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import torch
from torch import Tensor

from rela.alignment.agreement import usable
from rela.alignment.choose import Aligner
from rela.alignment.corpus import symmetrise_matrices, turn
from rela.alignment.fit import (
    FITTING,
    HELD_OUT,
    LINKS,
    Sides,
    TakenOffered,
    Targets,
    batch_targets,
    cross_entropy,
    drawn_links,
    targets_of,
    with_pieces,
)
from rela.alignment.fitted import batches_of, word_matrix
from rela.alignment.joint import JointAligner, JointModule, encode_sides, encoder_states, probabilities_of
from rela.analysis.capture import capture
from rela.analysis.words import punctuation_apart, word_index
from rela.decoding.directions import check_opposite
from rela.decoding.translate import Translator
from rela.progress import Progress, no_progress

TRAIN_PAIRS = 6000
STEPS = 600
"""Of each round."""
ROUNDS = 2
"""The first learns the links of the heads, each other one those of the aligner before it."""
DRAWING = "computing the links of the first aligner"
BATCH_PAIRS = 24
STATE_TOKENS = 2048
LEARNING_RATE, WARMUP = 2e-3, 50


@dataclass(frozen=True)
class JointFit:
    """A trained aligner and its loss on held-out pairs: nats a subword, the sum of both directions."""

    aligner: JointAligner
    loss: float


States = tuple[Tensor, Tensor]
"""The encoder states of a pair in half precision, [S + 1, C] and [T + 1, C]."""


@dataclass(frozen=True)
class Example:
    """One pair to learn from: its encoder states, and what each row wants."""

    source: Tensor
    target: Tensor
    there: Targets
    back: Targets


def fit_joint(
    forward: Aligner,
    backward: Aligner,
    pairs: Iterable[tuple[str, str]],
    *,
    limit: int = TRAIN_PAIRS,
    steps: int = STEPS,
    links: str = LINKS,
    seed: int = 1,
    progress: Progress = no_progress,
) -> JointFit:
    """A trained aligner for two models of opposite directions; pairs are written as for `forward`.

    The links of the heads are computed once, then learnt; a second aligner learns the links of the first, which are
    better. A word that no direction links is to give all its probability to </s>; one that is linked only in links that
    symmetrising left out is not learnt from. Nothing of the models changes, and their states are kept, in half
    precision, while the aligners learn.
    """
    check_opposite(forward.translator, backward.translator)
    sample = usable(pairs, [forward.translator, backward.translator], limit)
    sides, found = drawn_links(two_model_links(forward, backward, sample, links), len(sample), progress)
    states = encoder_states_of(forward.translator, backward.translator, sides, progress)
    order = list(range(len(sides)))
    Random(seed).shuffle(order)
    held = max(1, round(HELD_OUT * len(order)))
    widths = forward.translator.config.model.width, backward.translator.config.model.width
    module: JointModule | None = None
    for done in range(ROUNDS):
        if module is not None:
            again = drawn_again(module, sides, states, links, progress)
            found = again if any(taken for taken, _ in again) else found  # after few steps it draws none
        examples = [example_of(states[i], sides[i], found[i]) for i in order]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = JointModule(*widths).to(forward.translator.device)
            train(module, examples[held:], steps, seed, partial(report, progress, done * steps, ROUNDS * steps))
        module.eval()
    assert module is not None
    with torch.no_grad():
        parts = [examples[i : min(i + BATCH_PAIRS, held)] for i in range(0, held, BATCH_PAIRS)]
        loss = sum(float(loss_of(module, part)) * len(part) for part in parts) / held
    return JointFit(JointAligner(forward.translator, backward.translator, module, forward.tokenised), loss)


def report(progress: Progress, before: int, steps: int, step: int) -> None:
    """Report a step of a round as one of all rounds."""
    progress(FITTING, before + step, steps)


@torch.no_grad()
def drawn_again(
    module: JointModule, sides: Sequence[Sides], states: Sequence[States], method: str, progress: Progress
) -> list[TakenOffered]:
    """The links of a trained aligner: those that are taken, and those of either direction."""
    found: list[TakenOffered] = [(frozenset(), frozenset())] * len(sides)
    done = 0
    for batch in batches_of(sides, STATE_TOKENS):
        source, target = (padded([states[i][side] for i in batch]) for side in range(2))
        sizes = [(len(sides[i][0].ids), len(sides[i][1].ids)) for i in batch]
        probabilities = probabilities_of(module, (source[0], target[0]), (source[1], target[1]), sizes)
        for i, (there, back) in zip(batch, probabilities, strict=True):
            matrices = word_matrix(there, *sides[i]), word_matrix(back, *reversed(sides[i]))
            found[i] = symmetrise_matrices(*matrices, method), symmetrise_matrices(*matrices, "union")
        done += len(batch)
        progress(DRAWING, done, len(sides))
    return found


def two_model_links(
    forward: Aligner, backward: Aligner, pairs: Sequence[tuple[str, str]], method: str
) -> Iterator[tuple[Sides, TakenOffered]]:
    """For each pair its two sides, and the links of both models: those that are taken, and those of either.

    Punctuation marks are words of their own, as in `rela.alignment.fit.head_links`.
    """
    turned = [(target, source) for source, target in pairs]
    there = capture(forward.translator, pairs, ("cross",), tokenised=forward.tokenised)
    back = capture(backward.translator, turned, ("cross",), tokenised=backward.tokenised)
    for pair, first, second in zip(pairs, there, back, strict=True):
        one, other = first["cross"], second["cross"]
        source_pieces = words_alike(one.keys[:-1], other.queries[:-1])
        target_pieces = words_alike(one.queries[:-1], other.keys[:-1])
        matrices = (
            forward.choice.word_matrix(with_pieces(one, target_pieces[0], source_pieces[0])),
            backward.choice.word_matrix(with_pieces(other, source_pieces[1], target_pieces[1])),
        )
        source, target = encode_sides(forward.translator, backward.translator, *pair, forward.tokenised)
        sides = (
            dataclasses.replace(source, pieces=source_pieces[0]),
            dataclasses.replace(target, pieces=target_pieces[1]),
        )
        yield sides, (symmetrise_matrices(*matrices, method), symmetrise_matrices(*matrices, "union"))


def words_alike(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pieces of a sentence by two vocabularies, punctuation apart if both then have the same number of words."""
    apart = punctuation_apart(one), punctuation_apart(other)
    counts = [word_index(pieces)[-1:] for pieces in apart]
    return apart if counts[0] == counts[1] else (one, other)


@torch.no_grad()
def encoder_states_of(
    forward: Translator, backward: Translator, sides: Sequence[Sides], progress: Progress
) -> list[States]:
    """The states of each pair, in order."""
    found: list[States] = [(torch.empty(0), torch.empty(0))] * len(sides)
    done = 0
    for batch in batches_of(sides, STATE_TOKENS):
        source, target = (
            encoder_states(model, [sides[i][side] for i in batch])[0].half()
            for side, model in enumerate((forward, backward))
        )
        for row, i in enumerate(batch):
            S, T = (len(side.ids) for side in sides[i])
            found[i] = source[row, : S + 1].clone(), target[row, : T + 1].to(source.device, copy=True)
        done += len(batch)
        progress("encoding", done, len(sides))
    return found


def example_of(states: States, sides: Sides, links: TakenOffered) -> Example:
    """What is learnt from a pair."""
    (source, target), (taken, offered) = sides, links
    wanted = targets_of(source, target, taken, offered), targets_of(target, source, turn(taken), turn(offered))
    return Example(*states, *wanted)


def train(
    module: JointModule, examples: Sequence[Example], steps: int, seed: int, progress: Callable[[int], None]
) -> None:
    """Train the module for so many steps on batches of pairs of similar length; `progress` is given those done."""
    optimiser = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    random, order = Random(seed), sorted(range(len(examples)), key=lambda i: len(examples[i].source))
    waiting: list[list[int]] = []
    module.train()
    for step in range(steps):
        if not waiting:
            waiting = [order[i : i + BATCH_PAIRS] for i in range(0, len(order), BATCH_PAIRS)]
            random.shuffle(waiting)
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP) * (1 - step / steps)
        optimiser.zero_grad(set_to_none=True)
        loss_of(module, [examples[i] for i in waiting.pop()]).backward()
        optimiser.step()
        progress(step + 1)


def loss_of(module: JointModule, examples: Sequence[Example]) -> Tensor:
    """The cross entropy of a batch, both directions added, for each row that counts."""
    source, source_inside = padded([example.source for example in examples])
    target, target_inside = padded([example.target for example in examples])
    there, back = module(source, target, source_inside, target_inside)
    total: Tensor = there.new_zeros(())
    for found, parts in ((there, [one.there for one in examples]), (back, [one.back for one in examples])):
        wanted, counted = (tensor.to(found.device) for tensor in batch_targets(parts, tuple(found.shape[1:])))
        total = total + cross_entropy(found, wanted, counted)
    return total


def padded(states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """States [B, S, C] in float32, and where they are inside, [B, S]."""
    dense = torch.nn.utils.rnn.pad_sequence(list(states), batch_first=True).float()
    lengths = torch.tensor([len(one) for one in states], device=dense.device)
    return dense, torch.arange(dense.size(1), device=dense.device) < lengths[:, None]
