"""How much the heads of a layer disagree (Figure 5, Table 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from rela.analysis.record import AttentionRecord
from rela.attention.kinds import kind_of


def as_distributions(record: AttentionRecord, temperature: float = 1.0) -> Tensor:
    """[L, H, T, S + 1], each row of weights as a distribution over the keys and one dummy key after them.

    Kinds whose rows are distributions stay as they are. The others, as in the paper, become softmax(α^τ) over the
    keys the query may look at, τ the temperature: a small one flattens. Negative weights (GELU, leaky ReLU) keep
    their sign: sign(α)·|α|^τ. A null row of either sort is one-hot on the dummy key, so its entropy is 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; wanted a number above 0")
    weights = record.weights.double()
    if not kind_of(record.kind).is_distribution:
        scores = weights.sign() * weights.abs() ** temperature
        weights = scores.masked_fill(~record.allowed, float("-inf")).softmax(dim=-1)
    is_null = (record.weights == 0).all(dim=-1, keepdim=True)  # [L, H, T, 1]
    return torch.cat([weights.masked_fill(is_null, 0.0), is_null.double()], dim=-1)


def jensen_shannon(distributions: Tensor) -> Tensor:
    """[...], the generalised Jensen–Shannon divergence of H distributions [..., H, S], in nats.

        JS(p₁ … p_H) = E(1/H Σ_h p_h) − 1/H Σ_h E(p_h),  E the entropy

    It is 0 when all agree and log H when no two share a key.
    """
    mixed: Tensor = torch.special.entr(distributions.mean(dim=-2)).sum(dim=-1)
    alone: Tensor = torch.special.entr(distributions).sum(dim=-1).mean(dim=-1)
    return (mixed - alone).clamp(min=0)  # rounding can leave -1e-17 where heads agree


def diversity_of_queries(record: AttentionRecord, temperature: float = 1.0) -> Tensor:
    """[L, T], the Jensen–Shannon divergence over the heads of each layer, for each query."""
    return jensen_shannon(as_distributions(record, temperature).transpose(1, 2))  # [L, T, H, S + 1]


def head_diversity(record: AttentionRecord, temperature: float = 1.0) -> Tensor:
    """[L], the mean over queries of the generalised Jensen–Shannon divergence over heads (Correia et al., 2019)."""
    return diversity_of_queries(record, temperature).mean(dim=-1)
