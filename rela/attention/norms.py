"""Norms on the concatenated heads z [..., C]: what keeps attention without softmax trainable (equations 4 and 5).

None has a bias: a query that attends to nothing gives z = 0, and nothing must come out. Statistics are taken
in at least float32 whatever z is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from rela.attention.checks import is_number, shape
from rela.device import PLAIN, Device, triton_serves

# Inside the root, so that z = 0 has the finite slope 1/√ε: 10³ stays far inside float16's range.
EPSILON = 1e-6


def rms_norm(z: Tensor, gain: Tensor, gate: Tensor | None = None, eps: float = EPSILON) -> Tensor:
    """z / RMS(z) ⊙ g (equation 4), times σ(w ⊙ z) where there is a gate w (equation 5)."""
    exact = z.to(torch.promote_types(z.dtype, torch.float32))
    normal = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps) * gain
    return (normal if gate is None else torch.sigmoid(gate * exact) * normal).to(z.dtype)


def layer_norm(z: Tensor, gain: Tensor, gate: Tensor | None = None, eps: float = EPSILON) -> Tensor:
    """(z - mean) / deviation ⊙ g, times σ(w ⊙ z) where there is a gate w (row 8 of Table 1)."""
    exact = z.to(torch.promote_types(z.dtype, torch.float32))
    centred = exact - exact.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * gain
    return (normal if gate is None else torch.sigmoid(gate * exact) * normal).to(z.dtype)


class RMSNorm(nn.Module):
    """Root mean square norm (equation 4); `gain="xavier"` is the paper's ReLA-i, `gated=True` its ReLA-g.

    `size` is that of the last dimension, the merged heads. `gain` says how the factor g starts: at "one", or drawn
    from the "xavier" distribution. `eps` is added to the mean square.
    """

    def __init__(
        self,
        size: int,
        *,
        gain: str = "one",
        gated: bool = False,
        eps: float = EPSILON,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"size is {size!r}; wanted a whole number above 0")
        if gain not in ("one", "xavier"):
            raise ValueError(f'gain is {gain!r}; wanted "one" or "xavier"')
        if not is_number(eps) or not eps > 0.0:
            raise ValueError(f"eps is {eps!r}; wanted a number above 0, which keeps null attention from 0/0")
        self.eps = float(eps)  # a kernel compiled for the whole number 1 takes no other at run time
        self.initial_gain = gain
        self.gain = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(size, device=device, dtype=dtype)) if gated else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set gain and gate to their initial values."""
        if self.initial_gain == "xavier":
            uniform_xavier_(self.gain)
        else:
            nn.init.ones_(self.gain)
        if self.gate is not None:
            uniform_xavier_(self.gate)

    def forward(self, z: Tensor) -> Tensor:
        if triton_serves(z) and z.dim():
            from rela.kernels.layers.rms_norm import rms_norm as fused

            return fused(z, self.gain, self.gate, self.eps)  # which checks a layout once
        self.check(z)
        return rms_norm(z, self.gain, self.gate, self.eps)

    def check(self, z: Tensor) -> None:
        """Refuse an input of another width, or of integers."""
        if z.dim() == 0 or z.size(-1) != self.gain.numel():
            raise ValueError(f"z has shape {shape(z)}; wanted {self.gain.numel()} in its last dimension")
        if not z.is_floating_point():
            raise TypeError(f"z is {z.dtype}; wanted a floating point type")

    def extra_repr(self) -> str:
        return f"{self.gain.numel()}, gain={self.initial_gain}, gated={self.gate is not None}, eps={self.eps}"


class GatedRMSNorm(RMSNorm):
    """Root mean square norm with a gate on the unnormalised z (equation 5): the paper's ReLA-g."""

    def __init__(
        self, size: int, *, eps: float = EPSILON, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, gated=True, eps=eps, device=device, dtype=dtype)


class LayerNorm(RMSNorm):
    """Layer normalisation with a gain and no bias; gated, row 8 of Table 1."""

    def forward(self, z: Tensor) -> Tensor:
        self.check(z)
        return layer_norm(z, self.gain, self.gate, self.eps)


def parameters_of(norm: nn.Module | None) -> tuple[Tensor, Tensor | None, float] | None:
    """Gain, gate and ε of a norm whose kernel may be called without its module: it has no hooks and no other forward.

    None for other norms, and for parameters that are no plain tensors.
    """
    if type(norm) not in (RMSNorm, GatedRMSNorm):
        return None
    assert isinstance(norm, RMSNorm)
    if "forward" in norm.__dict__ or has_hooks(norm):
        return None
    parameters = norm._parameters  # where PyTorch looks an attribute up last
    gain = parameters.get("gain")
    gate = norm.gate if "gate" not in parameters else parameters["gate"]  # noqa: SIM401 (norm.gate would be looked up)
    if gain is None or type(gain) not in PLAIN or (gate is not None and type(gate) not in PLAIN):
        return None
    return gain, gate, norm.eps


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of a module does more than its forward."""
    before, after = module._forward_pre_hooks or module._backward_pre_hooks, module._forward_hooks
    return bool(before or after or module._backward_hooks or _has_any_global_hook())


def make_norm(name: str, size: int, device: Device = None, dtype: torch.dtype | None = None) -> nn.Module | None:
    """The norm of a kind, over `size` merged features; None for "none"."""
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    match name:
        case "none":
            return None
        case "rms":
            return RMSNorm(size, **options)
        case "rms-i":
            return RMSNorm(size, gain="xavier", **options)
        case "gated-rms":
            return GatedRMSNorm(size, **options)
        case "layer":
            return LayerNorm(size, **options)
        case "gated-layer":
            return LayerNorm(size, gated=True, **options)
    raise ValueError(f"norm is {name!r}; wanted none, rms, rms-i, gated-rms, layer or gated-layer")


def uniform_xavier_(vector: Tensor) -> Tensor:
    """U(-√(3/n), √(3/n)) over a vector of n: Xavier with fan-in = fan-out = n, as the paper's footnote 4."""
    bound = (3.0 / vector.numel()) ** 0.5
    return nn.init.uniform_(vector, -bound, bound)
