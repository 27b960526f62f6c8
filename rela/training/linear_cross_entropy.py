"""The output layer and its loss as one operation, so that logits [N, V] are never stored.

At 25 thousand tokens and 32 thousand words they would take 3.2 GB, and as much again for their gradient. Here a
chunk of rows at a time is multiplied out, its loss and its gradients with respect to hidden states and weight are
taken, and its logits are freed. The products are those of the plain way, neither more nor fewer. In half precision on a
GPU one kernel takes a chunk's loss and writes the gradient over the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.data.subwords import PAD
from rela.device import triton_serves_half

# Logits formed at a time: 2²⁶, 256 MB in float32; large enough for products at full speed.
CHUNK_LOGITS = 2**26
# The same for the kernel, 512 MB in half precision: the fewer chunks, the less often d_weight is read and written.
FUSED_LOGITS = 2**28


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """(label-smoothed loss, negative log-likelihood) of logits hidden · weightᵀ, summed over tokens that are not PAD.

    hidden is [N, C], weight [V, C], target [N]. Equals `smoothed_cross_entropy` of the logits; only the loss is
    differentiable. `chunk` is the number of rows taken at a time.
    """
    fused = triton_serves_half(hidden)
    rows = chunk or max((FUSED_LOGITS if fused else CHUNK_LOGITS) // weight.size(0), 1)
    wanted = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    take: Callable[..., tuple[Tensor, Tensor]] = uncompiled if fused else LinearCrossEntropy.apply
    return take(hidden, weight, target, smoothing, rows, wanted)


@torch.compiler.disable
def uncompiled(hidden: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """The same outside what is compiled: products and one kernel, of which a compiler makes nothing better.

    As an operator at the end of a network PyTorch 2.11 would never finish compiling it: it prints the arguments of each
    operator that it meets for the first time, and in them all they were computed from, which grows several times with
    every layer.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        sums: tuple[Tensor, Tensor] = LinearCrossEntropy.apply(hidden, *others)
        return sums


class LinearCrossEntropy(torch.autograd.Function):
    """Gradients are computed with the loss and scaled by its own gradient later, which is one number."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, rows: int, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(weight.dtype, torch.float32)
        loss = hidden.new_zeros((), dtype=exact)
        nll = torch.zeros_like(loss)
        d_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
        d_hidden = []
        take_loss = fused_loss if triton_serves_half(hidden) else chunk_loss
        typed = weight.to(hidden.dtype)
        for start in range(0, hidden.size(0), rows):
            part, words = hidden[start : start + rows], target[start : start + rows]
            part_loss, part_nll, d_logits = take_loss(F.linear(part, typed), words, smoothing, wanted)
            loss, nll = loss + part_loss, nll + part_nll
            if d_weight is not None and d_logits is not None:
                slope = d_logits.to(part.dtype)
                d_hidden.append(slope @ typed)
                d_weight = with_product(d_weight, slope.mT, part)
        ctx.save_for_backward(torch.cat(d_hidden) if d_hidden else None, d_weight)
        ctx.weight_type = weight.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight = ctx.saved_tensors
        if d_hidden is None:
            return (None,) * 6
        # a number alone would first be rounded to their type; as a matrix it is not, and the product is, once
        scaled = (d_hidden * d_loss.view(1, 1)).to(d_hidden.dtype)
        return scaled, (d_weight * d_loss).to(ctx.weight_type), None, None, None, None


def smoothed_loss_of(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """(the loss, the negative log-likelihood, log Σ exp of each row [N]); the first two summed over tokens not PAD.

    The loss is (1 - ε) · nll + ε · mean over the vocabulary of -log p (Szegedy et al., 2016).
    """
    normaliser = logits.logsumexp(-1)
    counted = target != PAD
    likelihood = normaliser - logits.gather(-1, target[:, None])[:, 0]
    nll = torch.where(counted, likelihood, 0.0).sum()
    uniform = torch.where(counted, normaliser - logits.mean(-1), 0.0).sum()
    return (1.0 - smoothing) * nll + smoothing * uniform, nll, normaliser


def chunk_loss(logits: Tensor, target: Tensor, smoothing: float, wanted: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """(loss, nll, slope of the loss in the logits or None) of a chunk of logits, in at least float32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss, nll, normaliser = smoothed_loss_of(logits, target, smoothing)
    if not wanted:
        return loss, nll, None
    # d loss / d logits = softmax - (1 - ε) at the word - ε / V everywhere
    slope = torch.exp(logits - normaliser[:, None]) - smoothing / logits.size(-1)
    slope = slope.scatter_add(-1, target[:, None], torch.full_like(normaliser[:, None], smoothing - 1.0))
    return loss, nll, torch.where((target != PAD)[:, None], slope, 0.0)


def fused_loss(logits: Tensor, target: Tensor, smoothing: float, wanted: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same by one kernel, the slope in place of the logits."""
    from rela.kernels.layers.cross_entropy import smoothed_loss

    return smoothed_loss(logits, target, smoothing, PAD, wanted)


def with_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left · right; from half precision on a GPU without rounding the product first."""
    if triton_serves_half(left):
        return torch.addmm(total, left, right, out_dtype=total.dtype)
    return total + (left @ right).to(total.dtype)
