"""How sparse a model that is being trained is: what `model.target_sparsity` asks for, and what there is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rela.attention.multihead import MultiheadAttention
from rela.attention.reference import attention_scores
from rela.data.batch import Batch
from rela.model.transformer import Transformer
from rela.packing import Packing, allowed_pairs


@torch.no_grad()
def measure_sparsity(model: Transformer, batch: Batch) -> tuple[float, float]:
    """(sparsity rate, penalty) of a batch: the share of zero weights, and the sum over attentions of its distance.

    Both are of the attentions that have a target, as the loss counts them; the model is left in training mode.
    """
    found: list[tuple[Tensor, float]] = []
    attentions = [part for part in model.modules() if isinstance(part, MultiheadAttention)]
    attentions = [attention for attention in attentions if attention.target_sparsity is not None]
    model.eval()
    try:
        for attention in attentions:
            attention.observer = observer_of(attention, found)
        model(*batch.inputs)
    finally:
        for attention in attentions:
            attention.observer = None
        model.train()
    rate = torch.stack([rates.mean() for rates, _ in found]).mean()
    penalty = torch.stack([(rates - target).square().mean() for rates, target in found]).sum()
    return float(rate), float(penalty)


def observer_of(attention: MultiheadAttention, found: list[tuple[Tensor, float]]) -> Callable[..., None]:
    """What an attention is watched by: it adds the rates [H] and the target to `found`."""

    def observe(q: Tensor, k: Tensor, queries: Packing, keys: Packing, causal: bool) -> None:
        scores = attention_scores(queries.pad(q), keys.pad(k), attention.head_dim**-0.5, None, attention.threshold)
        inside = torch.arange(scores.size(2), device=scores.device) < queries.lengths[:, None]  # [B, T]
        allowed = (allowed_pairs(queries, keys, causal) & inside[:, None, :, None]).expand_as(scores)
        zeros = ((scores <= 0) & allowed).sum((0, 2, 3))
        assert attention.target_sparsity is not None
        found.append((zeros / allowed.sum((0, 2, 3)), attention.target_sparsity))

    return observe
