"""What ends a sublayer: residual sum, dropout and layer norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rela.device import triton_serves


class Residual(nn.Module):
    """x + dropout(f(x)) with its layer norm: after the sum (the paper), or on f's input (pre-norm)."""

    def __init__(self, width: int, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm_first else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        """x + dropout(change), normalised unless the norm comes first."""
        if self.norm_first:
            return x + self.dropout(change)
        if triton_serves(change):
            return self.fused(x, change)
        return self.norm(x + self.dropout(change))

    def fused(self, x: Tensor, change: Tensor) -> Tensor:
        """The same in one kernel; the sum is never stored, and the result has `change`'s type, bf16 in training."""
        from rela.kernels.layers.residual_norm import residual_norm

        dropout = self.dropout.p if self.training else 0.0
        # drawn on the device, so that nothing waits and torch.manual_seed decides
        seed = torch.randint(2**31 - 1, (), device=x.device) if dropout else None
        return residual_norm(x, change, self.norm.weight, self.norm.bias, dropout, seed, self.norm.eps)
