"""How much attention rests on </s>, where softmax puts the attention of a query that has nothing to look at."""

from __future__ import annotations

import torch
from torch import Tensor

from rela.analysis.record import END, AttentionRecord


def sink_share(record: AttentionRecord, sink: str = END) -> Tensor:
    """[L, H, T], for each query the share of its attention that rests on the sink token.

        share[t] = Σ_{s : key s is </s>} |α[t, s]| / Σ_s |α[t, s]|,  and 0 for a null row

    The share, not the weight, so that kinds whose rows do not sum to one compare; a query that looks at nothing
    does not look at the sink either.
    """
    size = record.weights.double().abs()
    at_sink = torch.tensor([key == sink for key in record.keys], dtype=torch.bool, device=size.device)
    total = size.sum(dim=-1)
    return torch.where(total > 0, size[..., at_sink].sum(dim=-1) / total, 0.0)


def sink_mass(record: AttentionRecord, sink: str = END) -> Tensor:
    """[L, H], the mean over queries of `sink_share`."""
    return sink_share(record, sink).mean(dim=-1)
