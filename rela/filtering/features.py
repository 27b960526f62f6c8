"""What a model sees in a sentence pair: the numbers a detector of bad translations is made of, and their words.

All of it comes from one forced pass over the pair and one over the target with another source (the *reference*, which
is encoded once for all pairs): a target that is as probable with any source was not translated from its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rela.data.batch import Batch
from rela.decoding.even_packing import ROW_MULTIPLE, IdPair
from rela.decoding.forced import observed
from rela.decoding.translate import Translator
from rela.decoding.windows import batches_by_length
from rela.errors import check_log_probs
from rela.filtering.pair_scores import BATCH_TOKENS, target_log_probs
from rela.model.padding import KEY_MULTIPLE, round_up
from rela.model.transformer import Transformer
from rela.packing import Packing

UNSEEN = 0.2
"""A source subword that gets less than this much of the layer's attention, where 1 is a target subword's whole row."""
WORST = 0.25
"""Share of the target's subwords, the lowest ones, whose mean is a number of its own."""
PLAIN = (
    "log_prob",
    "worst_log_prob",
    "contrast",
    "worst_contrast",
    "explained",
    "unexplained",
    "longer",
    "shorter",
    "repeated",
    "shared",
    "copied",
)
LATER = ("unexplained",)
"""Numbers that older detectors do not have."""
LEAST_EXPLAINED = 0.4
"""A run of subwords is unexplained as far as less than this share of its log-probability is explained."""
MOST_SHARED = 0.5
"""Names, numbers and punctuation are the same on both sides; a larger share of the target is untranslated text."""
OF_DOMAIN = ("log_prob", "worst_log_prob")
"""Numbers that are low on text of another domain, however good the translation is."""


@dataclass(frozen=True, eq=False)
class PairView:
    """One pair as one model sees it."""

    null: NDArray[np.float64]
    """[L, H], the null rate of each head of cross attention."""
    log_probs: NDArray[np.float64]
    """[T + 1], of each target subword and </s>."""
    plain: NDArray[np.float64]
    """[T + 1], the same with the reference source."""
    contrast: float
    """Log-probability for each subword, above that with the reference source."""
    null_rows: NDArray[np.float64]
    """[T + 1], the share of all heads that look at nothing at each step."""
    coverage: NDArray[np.float64]
    """[L, S], the attention that each source subword gets; 1 is the whole row of a target subword."""
    features: NDArray[np.float64]
    """The numbers of `feature_names`."""
    memory: Tensor
    """[S + 1, C], the encoder's output for the source and its </s>, on the host."""

    @property
    def log_prob(self) -> float:
        """For each subword, </s> included."""
        return float(self.log_probs.mean())

    @property
    def null_rate(self) -> float:
        """Over all layers and heads."""
        return float(self.null.mean())


def feature_names(layers: int, heads: int) -> list[str]:
    """The names of a pair's numbers, as seen by one model.

    - log_prob: of the target, for each subword; worst_log_prob: the mean of the least probable quarter
    - contrast: log_prob minus that with the reference source; worst_contrast: the mean of its lowest quarter
    - explained: contrast as a share of the log-probability with the reference source, so that rare words count alike
    - unexplained: the log of 1 and the nats that the least explained run of subwords lacks for LEAST_EXPLAINED of it
    - longer, shorter: the log of target subwords by source subwords, where it is above, and minus it where below 0
    - repeated: share of target bigrams that were there before
    - shared: share of target subwords that are in the source too, up to a half; copied: what is beyond a half
    - of each layer: end, the share of attention on the source's </s>; unseen, the share of source subwords that get
      next to no attention; crowded, attention beyond 1.5 rows on one source subword, for each target subword
    - null of each layer and head: the null rate
    """
    by_layer = [f"{name} {layer + 1}" for name in ("end", "unseen", "crowded") for layer in range(layers)]
    return [*PLAIN, *by_layer, *(f"null {layer + 1}.{head + 1}" for layer in range(layers) for head in range(heads))]


def view_pairs(translator: Translator, ids: Sequence[IdPair], reference: list[int]) -> list[PairView]:
    """The view of each pair of subword ids, in order; a view does not depend on the pairs beside it."""
    views: list[PairView | None] = [None] * len(ids)
    tokens = BATCH_TOKENS.get(translator.device.type, 2048)
    encoded = encode_reference(translator, reference)
    lengths = [max(len(source), len(target), len(reference)) for source, target in ids]
    for batch in batches_by_length(lengths, tokens):
        for i, view in zip(batch, view_batch(translator, [ids[i] for i in batch], encoded), strict=True):
            views[i] = view
    return [view for view in views if view is not None]


@torch.inference_mode()
def encode_reference(translator: Translator, reference: list[int]) -> Tensor:
    """[R + 1, C], the encoder's output for the reference and its </s>."""
    batch = translator.pack_evenly([(reference, [])])
    return translator.model.encode(batch.source, batch.source_positions, batch.source_packing)[: len(reference) + 1]


@torch.inference_mode()
def view_batch(translator: Translator, ids: list[IdPair], reference: Tensor) -> Iterator[PairView]:
    """The same for one batch; the reference is encoded already."""
    model, batch = translator.model, translator.pack_evenly(ids)
    target = batch.target_in, batch.target_positions, batch.target_packing
    memory = model.encode(batch.source, batch.source_positions, batch.source_packing)
    with observed([layer.cross for layer in model.decoder]) as seen:
        log_probs = token_log_probs(model, model.decode(*target, memory, batch.source_packing), batch)
    plain = token_log_probs(model, model.decode(*target, *repeat_source(reference, batch.target_packing)), batch)
    # [L, B, H, T, S]; many small sums of each pair follow, for which a GPU would have to be waited for every time
    weights = torch.stack([layer[: len(ids)] for layer in seen]).float().cpu()
    memory = memory.cpu()
    bounds = batch.source_packing.cu_seqlens.tolist()
    for i, (source, words) in enumerate(ids):
        one = weights[:, i, :, : len(words) + 1, : len(source) + 1]
        yield make_view(one, log_probs[i], plain[i], source, words, memory[bounds[i] : bounds[i + 1]])


def repeat_source(memory: Tensor, targets: Packing) -> tuple[Tensor, Packing]:
    """One encoded source [R, C] as that of every target, packed; its sizes are those that `pack_evenly` would give."""
    count, length = targets.sentences, len(memory)
    ends = torch.arange(count + 1, dtype=torch.int32, device=memory.device) * length
    filler = round_up(count * length, ROW_MULTIPLE) - count * length
    return F.pad(memory.repeat(count, 1), (0, 0, 0, filler)), Packing(ends, round_up(length, KEY_MULTIPLE))


def token_log_probs(model: Transformer, hidden: Tensor, batch: Batch) -> list[NDArray[np.float64]]:
    """[T + 1] for each pair, of hidden states [N, C]: the log-probability of each target subword and </s>."""
    found = target_log_probs(model, hidden, batch.target_out).double().cpu().numpy()
    bounds = batch.target_packing.cu_seqlens.tolist()
    check_log_probs(found[: bounds[batch.sentences]])
    return [found[bounds[i] : bounds[i + 1]] for i in range(batch.sentences)]


def make_view(
    weights: Tensor,
    log_probs: NDArray[Any],
    plain: NDArray[Any],
    source: list[int],
    target: list[int],
    memory: Tensor,
) -> PairView:
    """The view of one pair from its cross attention [L, H, T + 1, S + 1] on the host, and log-probabilities [T + 1]."""
    total = weights.sum(-1, keepdim=True)
    null = (total[..., 0] == 0).double()  # [L, H, T + 1]
    shares = (weights / total.where(total > 0, 1.0)).double()
    by_layer = shares.mean(1)  # [L, T + 1, S + 1]
    end = by_layer[..., -1].mean(-1)
    coverage = by_layer[:, :-1, :-1].sum(1)  # [L, S], without the row and the column of </s>
    unseen = (coverage < UNSEEN).double().mean(-1) if source else end.new_zeros(len(end))
    crowded = (coverage - 1.5).clamp_min(0).sum(-1) / max(len(target), 1)
    by_head = null.mean(-1)
    contrast = float(log_probs.mean() - plain.mean())
    explained = np.clip(contrast / max(-float(plain.mean()), 1e-9), -1.0, 1.0)
    ratio = float(np.log((len(target) + 1) / (len(source) + 1)))
    numbers = [log_probs.mean(), lowest(log_probs), contrast, lowest(log_probs - plain), explained]
    numbers += [unexplained(log_probs[:-1], plain[:-1])]
    same = in_source(source, target)
    numbers += [max(ratio, 0.0), max(-ratio, 0.0), repeated(target)]
    numbers += [min(same, MOST_SHARED), max(same - MOST_SHARED, 0.0)]
    by_layers = [tensor.numpy().ravel() for tensor in (end, unseen, crowded, by_head)]
    return PairView(
        null=by_head.numpy(),
        log_probs=log_probs,
        plain=plain,
        contrast=contrast,
        null_rows=null.mean((0, 1)).numpy(),
        coverage=coverage.numpy(),
        features=np.concatenate([numbers, *by_layers]).astype(np.float64),
        memory=memory,
    )


def lowest(values: NDArray[Any]) -> float:
    """The mean of the lowest quarter."""
    return float(np.sort(values)[: max(1, round(WORST * len(values)))].mean())


def lacking(log_probs: NDArray[Any], plain: NDArray[Any]) -> NDArray[Any]:
    """[T], LEAST_EXPLAINED · −plain − (log_probs − plain): the nats that the source lacks to explain each subword."""
    return np.asarray((1 - LEAST_EXPLAINED) * plain - log_probs)


def unexplained(log_probs: NDArray[Any], plain: NDArray[Any]) -> float:
    """log(1 + max Σ lacking), the maximum over all runs of subwords.

    Of words with nothing in the source the sum grows with every word; where each word has a source it stays small.
    """
    sums = np.cumsum([0.0, *lacking(log_probs, plain)])
    return float(np.log1p((sums - np.minimum.accumulate(sums)).max()))


def repeated(ids: list[int]) -> float:
    """The share of bigrams that occurred before in the same sentence."""
    bigrams = Counter(pairwise(ids))
    return 1 - len(bigrams) / bigrams.total() if bigrams else 0.0


def in_source(source: list[int], target: list[int]) -> float:
    """The share of target subwords that are in the source too, each as often as it is there."""
    return (Counter(source) & Counter(target)).total() / len(target) if target else 0.0
