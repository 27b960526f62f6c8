"""Scores of a sentence pair: its null rate and its log-probability, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rela.decoding.even_packing import IdPair
from rela.decoding.forced import observed
from rela.decoding.translate import Translator
from rela.decoding.windows import batches_by_length
from rela.errors import check_log_probs
from rela.model.transformer import Transformer

# Padded tokens of a batch; all cross attention weights and the logits of a batch are held at once.
BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
OUTPUT_ROWS = {"cpu": 128}
"""Tokens whose logits are made at once: those of a whole batch do not fit into a CPU's cache. All, if not given."""


@dataclass(frozen=True)
class PairScore:
    """What ranks a sentence pair."""

    null_rate: float
    """Of cross attention, over all layers, heads and target tokens: what the paper ranks by. Low is good."""
    log_prob: float
    """Log-probability of the target for each of its subwords, </s> included. High is good."""


def score_pairs(
    translator: Translator, pairs: Sequence[tuple[str, str]], batch_tokens: int | None = None
) -> list[PairScore]:
    """The scores of each pair, in order."""
    return score_ids(translator, [translator.encode_pair(source, target) for source, target in pairs], batch_tokens)


def score_ids(translator: Translator, ids: Sequence[IdPair], batch_tokens: int | None = None) -> list[PairScore]:
    """The same for pairs that are subword ids already."""
    batch_tokens = batch_tokens or BATCH_TOKENS.get(translator.device.type, 2048)
    scores: list[PairScore | None] = [None] * len(ids)
    for batch in batches_by_length([max(len(source), len(target)) for source, target in ids], batch_tokens):
        for i, score in zip(batch, score_batch(translator, [ids[i] for i in batch]), strict=True):
            scores[i] = score
    return [score for score in scores if score is not None]


@torch.inference_mode()
def score_batch(translator: Translator, ids: list[IdPair]) -> list[PairScore]:
    """One forward over a batch."""
    model = translator.model
    batch = translator.pack_evenly(ids)
    with observed([layer.cross for layer in model.decoder]) as weights:
        hidden = model(*batch.inputs)
    lengths = batch.target_packing.lengths[: len(ids)]
    nulls = sum(count_null_rows(layer[: len(ids)], lengths) for layer in weights).tolist()  # type: ignore[union-attr]
    rows = [len(weights) * weights[0].size(1) * length for length in lengths.tolist()]

    log_probs = target_log_probs(model, hidden, batch.target_out).cpu()
    bounds = batch.target_packing.cu_seqlens.tolist()
    means = [sum(log_probs[bounds[i] : bounds[i + 1]].tolist()) / (bounds[i + 1] - bounds[i]) for i in range(len(ids))]
    check_log_probs(means)
    return [PairScore(null / count, mean) for null, count, mean in zip(nulls, rows, means, strict=True)]


def target_log_probs(model: Transformer, hidden: Tensor, target: Tensor) -> Tensor:
    """[N], the log-probability of each target token [N], of hidden states [N, C]."""
    rows = OUTPUT_ROWS.get(hidden.device.type, max(len(hidden), 1))
    found = [
        torch.log_softmax(model.logits(some).float(), -1).gather(-1, wanted[:, None])[:, 0]
        for some, wanted in zip(hidden.split(rows), target.split(rows), strict=True)
    ]
    return torch.cat(found)


def count_null_rows(weights: Tensor, lengths: Tensor) -> Tensor:
    """[B], how many of the rows of each sentence are null over all heads; weights are [B, H, T, S], padded."""
    real = torch.arange(weights.size(2), device=weights.device) < lengths[:, None]  # [B, T]
    return ((weights == 0).all(dim=-1) & real[:, None]).sum(dim=(1, 2))
