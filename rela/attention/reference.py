"""Attention as its equation, in plain PyTorch: the specification every faster path is held to.

weights = act(q kᵀ · scale + bias - θ)        context = weights · v
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention.weights import weights_of


def attention_scores(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None, threshold: float | Tensor = 0.0
) -> Tensor:
    """q kᵀ · scale + bias - θ, [B, H, T, S]; θ is a number or one value a head."""
    # Scaled before the product: float16 holds a shorter range than the unscaled scores of long heads need.
    scores = grouped_product(q * scale, k.mT)
    if isinstance(threshold, Tensor):
        scores = scores - threshold[:, None, None].to(scores.dtype)
    elif threshold:
        scores = scores - threshold
    if bias is None:
        return scores
    # Bounded below: a mask filled with the lowest finite number plus a negative score would be -inf, and a row of
    # those is NaN to softmax and gelu. A mask of another precision does not change that of the scores.
    return (scores + bias).to(scores.dtype).clamp(min=torch.finfo(scores.dtype).min)


def attention_weights(
    q: Tensor,
    k: Tensor,
    weights: str,
    scale: float,
    allowed: Tensor | None,
    bias: Tensor | None,
    threshold: float | Tensor,
) -> Tensor:
    """act(q kᵀ · scale + bias - θ), zero where not allowed; [B, H, T, S]."""
    return weights_of(weights)(attention_scores(q, k, scale, bias, threshold), allowed)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: str,
    scale: float,
    allowed: Tensor | None,
    bias: Tensor | None,
    threshold: float | Tensor,
    dropout: float,
    wide: bool = False,
) -> tuple[Tensor, Tensor]:
    """The context weights · v [B, H, T, D], and the weights [B, H, T, S] before dropout.

    `wide` computes and returns both in at least float32, for a norm to follow: rectified weights have no bound, and
    the context of a long row may be larger than float16 holds.
    """
    if not wide:
        alpha = attention_weights(q, k, weights, scale, allowed, bias, threshold)
        return grouped_product(F.dropout(alpha, dropout) if dropout else alpha, v), alpha
    with without_autocast(q.device):
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
        return attend(q, k, v, weights, scale, allowed, bias, threshold, dropout)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context in which products keep the type of what they multiply."""
    kind = device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def grouped_product(a: Tensor, b: Tensor) -> Tensor:
    """a [B, H, T, X] times b [B, Hk, X, Y], each of the Hk right sides serving H/Hk consecutive heads; [B, H, T, Y]."""
    batch, heads, rows, inner = a.shape
    groups = b.size(1)
    if heads == groups:
        return a @ b
    if torch.compiler.is_exporting():  # the sizes below make torch.export ask for a length that is not open
        return (a.unflatten(1, (groups, heads // groups)) @ b.unsqueeze(2)).flatten(1, 2)
    together = a.reshape(batch, groups, heads // groups * rows, inner) @ b
    return together.view(batch, heads, rows, b.size(-1))
