"""A linear map in eight bits: int8 weights and activations, exact sums, one scale for each row and each output."""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 127
ZERO = 128  # oneDNN multiplies unsigned activations, so zero lies in the middle of them
# What a row of zeros is divided by.
SMALLEST = 1e-30


class QuantisedLinear:
    """x Wᵀ + b, with each output's weights and each row of x rounded to 127 steps either side of zero.

    Products of eight bits add up in 32 without rounding, and a row has its own scale, so its result depends neither
    on the rows beside it nor on the order of the sum.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight is [outputs, inputs], bias [outputs]."""
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / weight_levels()).clamp_(min=SMALLEST)
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.scales = scales / LEVELS  # [N]; a row's largest value then is its scale
        self.zeros = torch.zeros_like(scales, dtype=torch.int32)
        self.bias = None if bias is None else bias.detach().float().clone()
        self.shift = torch.full(
            (weight.size(1),), ZERO + 0.5
        )  # a vector: a number would keep the loop from vectorising

    def __call__(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """x [R, inputs] to [R, outputs]; a `factor` [R, 1] multiplies the rows of x and is not rounded."""
        largest = x.abs().amax(1, keepdim=True).clamp_(min=SMALLEST)
        # 128.5 + 127 x / largest lies in [1.5, 255.5]: cutting the fraction off rounds to the nearest
        rounded = torch.addcdiv(self.shift, x, largest, value=LEVELS)
        rounded = rounded.to(torch.int16).to(torch.uint8)  # two vectorised conversions, where PyTorch has no direct one
        sums = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, ZERO, self.packed, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        if factor is not None:
            largest = largest * factor
        return sums.mul_(largest) if self.bias is None else torch.addcmul(self.bias, sums, largest)


def weight_levels() -> int:
    """127, or 63 on a CPU that adds pairs of 8-bit products in 16 bits, where 127 could overflow."""
    exact = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
    return LEVELS if exact else LEVELS // 2


def why_not_int8(device: torch.device) -> str | None:
    """The first reason why int8 cannot serve, or None if it can."""
    if device.type != "cpu":
        return f"it is for CPUs, and the model is on {device.type}"
    if "onednn" not in torch.backends.quantized.supported_engines:
        return "this build of PyTorch has no oneDNN kernels"
    return None
