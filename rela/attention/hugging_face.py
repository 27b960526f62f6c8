"""Sparse attention inside a Hugging Face model, by the attention interface of `transformers`."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from rela.attention import checks
from rela.attention.dispatch import attend_heads, attention_weights
from rela.attention.kinds import Kind, kind_of
from rela.attention.norms import make_norm

IMPLEMENTATION = "rela"
"""The name under which `transformers` knows us."""
ATTACHED = "rela_attention"
"""The name of what is added to each attention: its norm is in the state dict, and trained."""
HEADS, HEAD_SIZES = (
    ("num_heads", "num_attention_heads", "n_heads"),
    ("head_dim", "attention_head_size", "key_value_proj_dim"),
)
FOREIGN = ("softcap", "s_aux")
"""What some models' softmax also does with the scores, and we do not."""


class Attached(nn.Module):
    """What an attention of somebody else's needs to compute ours: the kind, its norm over the merged heads, θ."""

    def __init__(
        self, kind: Kind, heads: int, head_size: int, threshold: float | str, backend: str, like: Tensor
    ) -> None:
        super().__init__()
        learned = threshold == "learned"
        checks.check_own_threshold(kind, threshold)
        checks.check_options(kind, heads, 0.0 if learned else float(threshold), 0.0, backend)
        self.kind, self.backend = kind, backend
        self.norm = make_norm(kind.norm, heads * head_size, device=like.device, dtype=like.dtype)
        self.threshold = nn.Parameter(torch.zeros_like(like[:1]).expand(heads).clone()) if learned else threshold


def is_hugging_face(module: nn.Module) -> bool:
    """Whether a module is a model of `transformers` whose attention can be chosen, told without importing that."""
    return hasattr(module, "set_attn_implementation")


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that leave their attention to the interface, by name: their `forward` looks it up."""
    return {
        name: module
        for name, module in model.named_modules()
        if "ALL_ATTENTION_FUNCTIONS" in inspect.unwrap(type(module).forward).__code__.co_names
    }


def shape_of(module: Any, name: str) -> tuple[int, int]:
    """Heads of an attention and the size of each; classes do not agree on where they write them down."""
    config = getattr(module, "config", None)
    heads = [*(getattr(module, word, None) for word in HEADS), getattr(config, "num_attention_heads", None)]
    sizes = [getattr(module, word, None) for word in HEAD_SIZES]
    found = [next((value for value in values if isinstance(value, int)), None) for values in (heads, sizes)]
    if found[0] is None or found[1] is None:
        raise ValueError(f"{name} is a {type(module).__name__} that does not tell its heads and their size")
    return found[0], found[1]


def some_weight(module: nn.Module, model: nn.Module) -> Tensor:
    """A parameter of an attention, flat: what is attached has its device and type, for layers may be on many devices.

    The first of floating type, which quantised weights are not; an attention without any is served by its model's.
    """
    parameters = (parameter for part in (module, model) for parameter in part.parameters())
    return next(parameter for parameter in parameters if parameter.is_floating_point()).detach().flatten()


def choose(model: Any, looking: Collection[Any]) -> None:
    """Let a model, each model inside it and all that look an attention up find ours.

    Where one of them refuses, all stay as they were.
    """
    parts = [part for part in model.modules() if is_hugging_face(part)]
    configs = {id(module.config): module.config for module in (*parts, *looking)}
    for config in list(configs.values()):
        configs |= {id(inner): inner for name in config.sub_configs if (inner := getattr(config, name, None))}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    try:
        for part in parts:
            part.set_attn_implementation(IMPLEMENTATION)
    except Exception:
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        raise
    # Some attentions hold a copy of the configuration, out of their model's reach (T5, models made of two others).
    for attention in looking:
        attention.config._attn_implementation_internal = IMPLEMENTATION


def replace_in_transformers(
    model: Any, kind: str | Kind, *, threshold: float | str = 0.0, backend: str = "auto"
) -> dict[str, str]:
    """Let every attention of a Hugging Face model be of `kind`, its projections kept; their classes by name."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    kind, found = kind_of(kind), attentions(model)
    if not found:
        raise ValueError(f"{type(model).__name__} leaves no attention to the interface of transformers")
    made = {
        name: Attached(kind, *shape_of(module, name), threshold, backend, some_weight(module, model))
        for name, module in found.items()
    }
    AttentionInterface.register(IMPLEMENTATION, forward)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    choose(model, found.values())
    for name, module in found.items():
        module.add_module(ATTACHED, made[name].train(module.training))
    return {name: type(module).__name__ for name, module in found.items()}


def forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """What `transformers` calls: the normalised context [B, T, H, D], and the weights if they are asked for."""
    ours = getattr(module, ATTACHED, None)
    if not isinstance(ours, Attached):
        raise ValueError(f"this {type(module).__name__} was not given to rela.replace_attention")
    if strange := [name for name in FOREIGN if others.get(name) is not None]:
        raise ValueError(
            f"{type(module).__name__} brings {', '.join(strange)}, which {ours.kind.weights} has no place for"
        )
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    limits: dict[str, Any] = {
        "mask": with_bias(attention_mask, others.get("position_bias")),
        "causal": bool(causal) and attention_mask is None and query.size(2) > 1,  # as for SDPA: a mask says all
        "scale": scaling,
        "threshold": ours.threshold,
    }
    dropout = dropout if module.training else 0.0
    context = attend_heads(query, key, value, ours.kind, **limits, dropout=dropout, backend=ours.backend)
    merged = context.transpose(1, 2).flatten(2)  # [B, T, H·D]
    merged = merged if ours.norm is None else ours.norm(merged)
    weights = (
        attention_weights(query, key, kind=ours.kind.weights, **limits) if others.get("output_attentions") else None
    )
    return merged.unflatten(2, (query.size(1), -1)), weights


def with_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One mask of a mask and of what a model adds to its scores (T5 the distance of two words)."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
