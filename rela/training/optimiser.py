"""Adam as training uses it: made from the settings, its rate set from step to step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rela.config import TrainConfig


def make_optimiser(model: nn.Module, settings: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """Adam over all parameters, at rate 0 until `set_rate`."""
    on_gpu = device.type == "cuda"
    return torch.optim.Adam(
        model.parameters(),
        # On a GPU the rate is a tensor, so that a recorded step reads the rate of the step it is replayed for.
        lr=torch.zeros((), device=device) if on_gpu else 0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=on_gpu,
        capturable=on_gpu,
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give the optimiser the learning rate of the step that comes next."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def rate_of(optimiser: torch.optim.Optimizer) -> float:
    """The learning rate of the last step."""
    return float(optimiser.param_groups[0]["lr"])


def apply_gradients(optimiser: torch.optim.Optimizer, model: nn.Module, clip_norm: float) -> None:
    """Clip the gradients if asked to, let the optimiser step, and free them."""
    if clip_norm:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
