"""A trained aligner on the frozen encoders of two models of opposite directions, with a null of its own.

The model of one direction has read the whole source sentence, the model of the other the whole target sentence, so that
unlike a decoder state neither side is without the words that follow. Small projections of both encoders' output are
compared with each other; softmax over the source gives each target word its source words, softmax over the target the
reverse (the links of awesome-align, Dou and Neubig, 2021, arXiv 2101.08231, without its language model). Then each
score is corrected by the probabilities around it, for words beside each other often have counterparts beside each
other. `rela.alignment.joint_fit` trains it on links of the models' own heads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.alignment.fitted import BATCH_TOKENS, batches_of, word_matrix
from rela.analysis.capture import WINDOW, Encoded, encode
from rela.decoding.directions import check_opposite
from rela.decoding.translate import Translator
from rela.files import replacing
from rela.model.folder import ModelFolderError, load_module, read_header, save_weights

JOINT = "aligner_joint.safetensors"
SIZE = 256
CHANNELS = 8
DROPOUT = 0.1


class AlignersDiffer(ModelFolderError):
    """Two model folders have aligners of different trainings."""


class Neighbours(nn.Module):
    """What is added to the score of each pair of subwords for the pairs around it: two convolutions of 3 × 3.

    They read the probabilities of both directions. Both directions use the same weights, each with its own first.
    """

    def __init__(self, channels: int = CHANNELS) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, 1, 3, padding=1)
        for parameter in self.second.parameters():  # at first nothing is corrected
            nn.init.zeros_(parameter)

    def forward(self, own: Tensor, other: Tensor, inside: Tensor) -> Tensor:
        """[B, T, S], of probabilities and of where both subwords are inside a sentence, of the same shape."""
        seen = inside[:, None]
        hidden = self.first(torch.stack([own, other], dim=1) * seen).relu() * seen
        change: Tensor = self.second(hidden)
        return change[:, 0]


class JointModule(nn.Module):
    """log softmax of q kᵀ / √D, corrected by its neighbours, over either side; q and k are of one encoder each.

    Without `neighbours` nothing is corrected, as in aligners trained by earlier versions.
    """

    def __init__(self, source_width: int, target_width: int, size: int = SIZE, neighbours: bool = True) -> None:
        super().__init__()
        self.source = nn.Linear(source_width, size)
        self.target = nn.Linear(target_width, size)
        self.neighbours = Neighbours() if neighbours else None

    def forward(
        self, source: Tensor, target: Tensor, source_inside: Tensor, target_inside: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B, T, S] of each target's sources and [B, S, T] of each source's targets.

        Of states [B, S, C] and [B, T, C]; `inside` is [B, S] and [B, T], False at padding. The last position inside, a
        sentence's </s>, stands for no word at all.
        """
        k, q = (
            projection(F.dropout(F.layer_norm(states, states.shape[-1:]), DROPOUT, self.training))
            for projection, states in ((self.source, source), (self.target, target))
        )
        scores: Tensor = (q @ k.mT).float() * q.size(-1) ** -0.5
        there, back = log_softmax(scores, source_inside), log_softmax(scores.mT, target_inside)
        if self.neighbours is None:
            return there, back
        inside = target_inside[:, :, None] & source_inside[:, None]
        there, back = there.exp(), back.exp()
        return (
            log_softmax(scores + self.neighbours(there, back.mT, inside), source_inside),
            log_softmax(scores.mT + self.neighbours(back, there.mT, inside.mT), target_inside),
        )


def log_softmax(scores: Tensor, inside: Tensor) -> Tensor:
    """Of scores [B, T, S] over the S that are `inside` [B, S]."""
    return scores.masked_fill(~inside[:, None], float("-inf")).log_softmax(dim=-1)


class JointAligner:
    """Word weights of both directions at once, of two models; `rela.alignment.corpus` makes links of them."""

    chosen = True

    def __init__(self, forward: Translator, backward: Translator, module: JointModule, tokenised: bool = False) -> None:
        check_opposite(forward, backward)
        self.translator, self.backward, self.tokenised = forward, backward, tokenised
        self.module = module.to(forward.device).eval()

    def two_matrices(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[Tensor, Tensor]]:
        """The probabilities [T', S'] of each source word for each target word, and [S', T'] the reverse, in order.

        The row of a word that most probably has no counterpart is zero.
        """
        stream = iter(pairs)
        while window := list(islice(stream, WINDOW)):
            encoded = [encode_sides(self.translator, self.backward, *pair, self.tokenised) for pair in window]
            found: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * len(window)
            for batch in batches_of(encoded, BATCH_TOKENS.get(self.translator.device.type, 2048)):
                for i, (there, back) in zip(batch, self.probabilities([encoded[i] for i in batch]), strict=True):
                    source, target = encoded[i]
                    found[i] = word_matrix(there, source, target), word_matrix(back, target, source)
            yield from found

    def matrices(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Tensor]:
        """[T', S'], the first of `two_matrices`."""
        return (there for there, _ in self.two_matrices(pairs))

    @torch.inference_mode()
    def matrices_of_memories(
        self, pair: tuple[str, str], source_memory: Tensor, target_memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The `two_matrices` of a pair whose sides are encoded already, to [S + 1, C] and [T + 1, C]."""
        source, target = encode_sides(self.translator, self.backward, *pair, self.tokenised)
        states = [memory[None].to(self.translator.device) for memory in (source_memory, target_memory)]
        inside = [torch.ones(one.shape[:2], dtype=torch.bool, device=one.device) for one in states]
        there, back = (one[0, :-1].exp().cpu() for one in self.module(*states, *inside))
        return word_matrix(there, source, target), word_matrix(back, target, source)

    @torch.inference_mode()
    def probabilities(self, pairs: Sequence[tuple[Encoded, Encoded]]) -> list[tuple[Tensor, Tensor]]:
        """[T, S + 1] and [S, T + 1] for each pair of a batch: subwords by subwords and </s>."""
        sources, targets = zip(*pairs, strict=True)
        source, source_inside = encoder_states(self.translator, sources)
        target, target_inside = (states.to(source.device) for states in encoder_states(self.backward, targets))
        sizes = [(len(one.ids), len(other.ids)) for one, other in pairs]
        return probabilities_of(self.module, (source, target), (source_inside, target_inside), sizes)


def probabilities_of(
    module: JointModule, states: tuple[Tensor, Tensor], inside: tuple[Tensor, Tensor], sizes: Sequence[tuple[int, int]]
) -> list[tuple[Tensor, Tensor]]:
    """[T, S + 1] and [S, T + 1] for each pair of a batch, of `sizes` (S, T): subwords by subwords and </s>."""
    there, back = (one.exp().cpu() for one in module(*states, *inside))
    return [(there[i, :T, : S + 1], back[i, :S, : T + 1]) for i, (S, T) in enumerate(sizes)]


def encode_sides(
    forward: Translator, backward: Translator, source: str, target: str, tokenised: bool
) -> tuple[Encoded, Encoded]:
    """The source as the forward model reads it and the target as the backward model does."""
    return encode(forward, source, "", tokenised)[0], encode(backward, target, "", tokenised)[0]


def encoder_states(translator: Translator, sides: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
    """The encoder's output [B, S, C] for sentences and their </s>, and where it is inside, [B, S]."""
    batch = translator.pack_evenly([(side.ids, []) for side in sides])
    packing = batch.source_packing
    states = translator.model.encode(batch.source, batch.source_positions, packing)
    inside = torch.arange(packing.max_seqlen, device=states.device) < packing.lengths[: len(sides), None]
    return packing.pad(states[:, None])[: len(sides), 0], inside


def save_joint(aligner: JointAligner) -> None:
    """Put a trained aligner into the folders of both models, in each with its own side as the source."""
    weights = aligner.module.state_dict()
    for translator, part in ((aligner.translator, weights), (aligner.backward, swapped(weights))):
        assert translator.folder is not None
        with replacing(translator.folder / JOINT) as partial:
            save_weights({name: tensor.half() for name, tensor in part.items()}, partial)


def joint_file(translator: Translator) -> Path | None:
    """The file of the trained aligner of two models in this model's folder, or None where there is none."""
    path = translator.folder / JOINT if translator.folder else None
    return path if path is not None and os.path.lexists(path) else None


def load_joint(forward: Translator, backward: Translator, tokenised: bool = False) -> JointAligner | None:
    """The trained aligner of two model folders, or None where there is none; refused if each has another one."""
    paths = [path for one in (forward, backward) if (path := joint_file(one)) is not None]
    if len(paths) < 2:
        return None
    widths = forward.config.model.width, backward.config.model.width
    module, opposite = module_in(paths[0], *widths), module_in(paths[1], *reversed(widths))
    own, turned = load_module(module, paths[0]), swapped(load_module(opposite, paths[1]))
    if own.keys() != turned.keys() or not all(tensor.equal(turned[name]) for name, tensor in own.items()):
        raise AlignersDiffer(
            f"{paths[0]} and {paths[1]} are not of one training; run rela fit-aligner --train with these two models"
        )
    module.load_state_dict({name: tensor.float() for name, tensor in own.items()})
    return JointAligner(forward, backward, module, tokenised)


def module_in(path: Path, source_width: int, target_width: int) -> JointModule:
    """The module that a file has weights for: that of an earlier version has no neighbours."""
    neighbours = any(name.startswith("neighbours.") for name in read_header(path).shapes)
    return JointModule(source_width, target_width, neighbours=neighbours)


def swapped(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights for pairs written the other way round."""
    sides = {"source": "target", "target": "source"}
    parts = {name: name.partition(".") for name in weights}
    return {f"{sides.get(side, side)}{dot}{rest}": weights[name] for name, (side, dot, rest) in parts.items()}
