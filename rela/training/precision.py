"""In what numbers the forward pass is computed: float32, or half precision, of which float16 needs a scale."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from rela.device import has_bf16

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """What `train.precision` means on a device.

    Gradients in float16 vanish below 6e-8, so the loss is multiplied by a scale that doubles after 2,000 steps without
    an overflow; a step that overflows is left out, and halves it.
    """

    def __init__(self, wanted: str, device: torch.device) -> None:
        self.device = device
        self.name = wanted if wanted != "auto" else "bf16" if has_bf16(device) else "fp32"
        self.type = TYPES.get(self.name)
        self.scaler = torch.amp.GradScaler(device.type) if self.type == torch.float16 else None

    def autocast(self) -> contextlib.AbstractContextManager:
        """Within this, products are computed in half precision, if that is wanted."""
        return contextlib.nullcontext() if self.type is None else torch.autocast(self.device.type, self.type)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to take gradients of."""
        if self.scaler is None:
            return loss
        product: Tensor = self.scaler.scale(loss)
        return product

    @property
    def scale(self) -> float | None:
        """The factor on the loss, or None where there is none."""
        return None if self.scaler is None else float(self.scaler.get_scale())

    def state(self) -> Tensor:
        """[2]: the scale, and the steps since it last changed."""
        assert self.scaler is not None
        state = self.scaler.state_dict()
        return torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on with a state that `state` gave."""
        assert self.scaler is not None
        scale, steps = state.tolist()
        self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": scale, "_growth_tracker": int(steps)})
