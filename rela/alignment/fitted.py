"""A trained aligner on a frozen model: which source word each target word belongs to, with a null of its own.

After Chen et al. (2020, arXiv 2004.14837, Shift-AET): the decoder state of the step whose *input* is the target token,
so that the token is known and not guessed, attends to the encoder's output through projections of its own. Ours also
reads the state of the step that outputs the token. Nothing of the translation model changes. `rela.alignment.fit`
trains it on links of the model's own heads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.alignment.punctuation import of_one_sort
from rela.analysis.capture import WINDOW, Encoded, encode
from rela.analysis.links import matrix_links
from rela.analysis.record import END
from rela.analysis.words import merge_subwords
from rela.data.batch import Batch
from rela.decoding.translate import Translator
from rela.decoding.windows import batches_by_length
from rela.evaluation.alignment import Link
from rela.files import replacing
from rela.model.folder import ModelFolderError, load_module, save_weights

FITTED = "aligner.safetensors"
BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}


class LinkModule(nn.Module):
    """log softmax(q kᵀ / √C) over the source, q from decoder states and k from the encoder's output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(2 * width, width)
        self.key = nn.Linear(width, width, bias=False)

    def forward(self, states: Tensor, memory: Tensor, inside: Tensor) -> Tensor:
        """[B, T, S], log-probabilities, of states [B, T, 2C] and memory [B, S, C]; `inside` [B, S] is False at padding.

        The last position inside, the source's </s>, stands for no source word at all.
        """
        C = memory.size(-1)
        q = self.query(F.layer_norm(states.unflatten(-1, (2, C)), (C,)).flatten(-2))
        k = self.key(F.layer_norm(memory, (C,)))
        scores: Tensor = (q @ k.mT).float() * q.size(-1) ** -0.5
        return scores.masked_fill(~inside[:, None], float("-inf")).log_softmax(dim=-1)


class FittedAligner:
    """Word links of sentence pairs from a trained aligner; used as `rela.alignment.choose.Aligner` is."""

    chosen = True

    def __init__(self, translator: Translator, module: LinkModule, layer: int, tokenised: bool = False) -> None:
        self.translator, self.layer, self.tokenised = translator, layer, tokenised
        self.module = module.to(translator.device).eval()

    def align(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[frozenset[Link]]:
        """The links (source word, target word) of each pair, in order; none is of a word and a punctuation mark."""
        pairs, texts = tee(zip(sources, targets, strict=True))
        yield from of_one_sort(map(matrix_links, self.matrices(pairs)), texts)

    def matrices(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Tensor]:
        """[T', S'], the probability of each source word for each target word, in order.

        The row of a target word that most probably has no source word is zero.
        """
        stream = iter(pairs)
        while window := list(islice(stream, WINDOW)):
            encoded = [encode(self.translator, source, target, self.tokenised) for source, target in window]
            found: list[Tensor] = [torch.empty(0)] * len(window)
            for batch in batches_of(encoded, BATCH_TOKENS.get(self.translator.device.type, 2048)):
                probabilities = self.probabilities([encoded[i] for i in batch])
                for i, matrix in zip(batch, probabilities, strict=True):
                    found[i] = word_matrix(matrix, *encoded[i])
            yield from found

    @torch.inference_mode()
    def probabilities(self, pairs: list[tuple[Encoded, Encoded]]) -> list[Tensor]:
        """[T, S + 1] for each pair of a batch: subwords of the target by those of the source and </s>."""
        states, memory, inside = decoder_states(self.translator, pairs)
        found = self.module(states[self.layer], memory, inside).exp().cpu()
        return [
            matrix[: len(target.ids), : len(source.ids) + 1]
            for matrix, (source, target) in zip(found, pairs, strict=True)
        ]


def word_matrix(probabilities: Tensor, source: Encoded, target: Encoded) -> Tensor:
    """[T', S'], words by words, of [T, S + 1], subwords by subwords and </s>; zero where </s> is the most probable."""
    merged = merge_subwords(probabilities, target.pieces, (*source.pieces, END))
    rows, null = merged[:, :-1], merged[:, -1:]
    if not rows.numel():
        return rows
    return rows.where(rows.amax(dim=-1, keepdim=True) > null, 0.0)


def batches_of(encoded: Sequence[tuple[Encoded, Encoded]], tokens: int) -> Iterator[list[int]]:
    """The indices of pairs of similar length, as many as have at most `tokens` tokens, padding included."""
    return batches_by_length([max(len(source.ids), len(target.ids)) for source, target in encoded], tokens)


def decoder_states(
    translator: Translator, pairs: Sequence[tuple[Encoded, Encoded]]
) -> tuple[list[Tensor], Tensor, Tensor]:
    """States [B, T, 2C] before the decoder and after each layer, memory [B, S, C] and where it is inside [B, S].

    Row t holds the state of the step whose input is target token t, then the state of the step that outputs it.
    """
    model = translator.model
    batch: Batch = translator.pack_evenly([(source.ids, target.ids) for source, target in pairs])
    sources, targets = batch.source_packing, batch.target_packing
    memory = model.encode(batch.source, batch.source_positions, sources)
    states = [model.target_embedding(batch.target_in, batch.target_positions)]
    for layer in model.decoder:
        states.append(layer(states[-1], targets, memory, sources))
    count = len(pairs)
    padded = [targets.pad(state[:, None])[:count, 0] for state in states]  # [B, T + 1, C]
    dense = [torch.cat([state[:, 1:], state[:, :-1]], dim=-1) for state in padded]
    inside = torch.arange(sources.max_seqlen, device=memory.device) < sources.lengths[:count, None]
    return dense, sources.pad(memory[:, None])[:count, 0], inside


def save_fitted(folder: Path, aligner: FittedAligner) -> None:
    """Put a trained aligner into the model folder."""
    with replacing(folder / FITTED) as partial:
        save_weights({**aligner.module.state_dict(), "layer": torch.tensor(aligner.layer)}, partial)


def load_fitted(translator: Translator, tokenised: bool = False) -> FittedAligner | None:
    """The trained aligner of a model folder, or None."""
    if translator.folder is None or not os.path.lexists(translator.folder / FITTED):
        return None
    path, shape = translator.folder / FITTED, translator.config.model
    module = LinkModule(shape.width)
    weights = load_module(module, path, layer=torch.tensor(0))
    layer = int(weights.pop("layer"))
    if not 0 <= layer <= shape.decoder_layers:
        raise ModelFolderError(f"{path} reads layer {layer}; the model has layers 0 to {shape.decoder_layers}")
    module.load_state_dict(weights)
    return FittedAligner(translator, module, layer, tokenised)
