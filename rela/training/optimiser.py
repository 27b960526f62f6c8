"""Adam and AdamW as training uses them: made from the settings, the rate set from step to step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rela.config import TrainConfig


def make_optimiser(model: nn.Module, settings: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """Adam or AdamW over all parameters, at rate 0 until `set_rate`."""
    on_gpu = device.type == "cuda"
    decoupled = settings.optimiser == "adamw"
    make = torch.optim.AdamW if decoupled else torch.optim.Adam
    return make(
        decayed_and_not(model) if decoupled else model.parameters(),
        # On a GPU the rate is a tensor, so that a recorded step reads the rate of the step it is replayed for.
        lr=torch.zeros((), device=device) if on_gpu else 0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=on_gpu,
        capturable=on_gpu,
    )


def decayed_and_not(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups of parameters: matrices, and what does not decay: biases, norms, thresholds."""
    parameters = list(model.parameters())
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    return [
        {"params": [parameter for parameter in parameters if parameter.dim() >= 2]},
        *([{"params": vectors, "weight_decay": 0.0}] if vectors else []),
    ]


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


def apply_gradients(
    optimiser: torch.optim.Optimizer,
    model: nn.Module,
    clip_norm: float,
    norm: Tensor | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Clip the gradients if asked to, let the optimiser step, and free them.

    `norm`, a tensor of one number, gets their norm before they are clipped. With a `scaler` they are of a scaled loss:
    they are divided by the scale first, and if one is not finite, there is no step.
    """
    if scaler is not None:
        scaler.unscale_(optimiser)
    if clip_norm:
        total = nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    if norm is not None:
        norm.copy_(whole(total if clip_norm else norm_of_gradients(model)))
    if scaler is None:
        optimiser.step()
    else:
        scaler.step(optimiser)
        scaler.update()
    optimiser.zero_grad(set_to_none=True)


def norm_of_gradients(model: nn.Module) -> Tensor:
    """The Euclidean norm of all gradients together."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm: Tensor = nn.utils.get_total_norm(gradients)
    return norm


def whole(tensor: Tensor) -> Tensor:
    """A tensor whose parts lie with several processes, put together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
