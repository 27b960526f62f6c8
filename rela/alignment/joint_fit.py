"""Training an aligner on the frozen encoders of two models, from the links that their heads draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
from rela.alignment.fitted import batches_of
from rela.alignment.joint import JointAligner, JointModule, encode_sides, encoder_states
from rela.analysis.capture import capture
from rela.analysis.words import punctuation_apart, word_index
from rela.decoding.directions import check_opposite
from rela.decoding.translate import Translator
from rela.progress import Progress, no_progress

TRAIN_PAIRS = 6000
STEPS = 600
BATCH_PAIRS = 24
STATE_TOKENS = 2048
LEARNING_RATE, WARMUP = 2e-3, 50


@dataclass(frozen=True)
class JointFit:
    """A trained aligner and its loss on held-out pairs: nats a subword, the sum of both directions."""

    aligner: JointAligner
    loss: float


@dataclass(frozen=True)
class Example:
    """One pair to learn from: encoder states [S + 1, C] and [T + 1, C] in half precision, and what each row wants."""

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

    The links of the heads are computed once, then learnt. A word that no direction links is to give all its probability
    to </s>; one that is linked only in links that symmetrising left out is not learnt from. Nothing of the models
    changes, and their states are kept, in half precision, while the aligner learns.
    """
    check_opposite(forward.translator, backward.translator)
    sample = usable(pairs, [forward.translator, backward.translator], limit)
    sides, found = drawn_links(two_model_links(forward, backward, sample, links), len(sample), progress)
    examples = make_examples(forward.translator, backward.translator, sides, found, progress)
    Random(seed).shuffle(examples)
    held = max(1, round(HELD_OUT * len(examples)))
    widths = [aligner.translator.config.model.width for aligner in (forward, backward)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = JointModule(*widths).to(forward.translator.device)
        train(module, examples[held:], steps, seed, progress)
    module.eval()
    with torch.no_grad():
        parts = [examples[i : min(i + BATCH_PAIRS, held)] for i in range(0, held, BATCH_PAIRS)]
        loss = sum(float(loss_of(module, part)) * len(part) for part in parts) / held
    return JointFit(JointAligner(forward.translator, backward.translator, module, forward.tokenised), loss)


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
def make_examples(
    forward: Translator,
    backward: Translator,
    sides: Sequence[Sides],
    links: Sequence[TakenOffered],
    progress: Progress,
) -> list[Example]:
    """What is learnt from, in the order of the pairs."""
    examples: list[Example | None] = [None] * len(sides)
    done = 0
    for batch in batches_of(sides, STATE_TOKENS):
        states = [
            encoder_states(model, [sides[i][side] for i in batch])[0].half()
            for side, model in enumerate((forward, backward))
        ]
        for row, i in enumerate(batch):
            (source, target), (taken, offered) = sides[i], links[i]
            examples[i] = Example(
                states[0][row, : len(source.ids) + 1].clone(),
                states[1][row, : len(target.ids) + 1].to(states[0].device, copy=True),
                targets_of(source, target, taken, offered),
                targets_of(target, source, turn(taken), turn(offered)),
            )
        done += len(batch)
        progress("encoding", done, len(sides))
    return [example for example in examples if example is not None]


def train(module: JointModule, examples: Sequence[Example], steps: int, seed: int, progress: Progress) -> None:
    """Train the module for so many steps on batches of pairs of similar length."""
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
        progress(FITTING, step + 1, steps)


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
