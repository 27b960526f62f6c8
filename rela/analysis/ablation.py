"""Models with some heads switched off: what a head is worth shows in what changes without it."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import nn

from rela.analysis.record import TYPES
from rela.attention.multihead import MultiheadAttention
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer

Head = tuple[str, int, int]
"""Attention type, layer and head, counted from 0."""


def without_heads(translator: Translator, heads: Iterable[Head]) -> Translator:
    """The same model in which these heads add nothing, as if all their rows were null rows.

    The rows of W_v and b_v that make a head's values are zero, so that every engine computes the same model. All other
    tensors are the original's, which does not change.
    """
    if translator.members:
        raise ValueError(f"this is an ensemble of {len(translator.members)} models; wanted one to switch heads off in")
    shared = [*translator.model.parameters(), *translator.model.buffers()]
    model = copy.deepcopy(translator.model, {id(tensor): tensor for tensor in shared})
    attentions = attentions_of(model)
    for type, layer, head in heads:
        check_head(translator, type, layer, head)
        switch_off(attentions[type][layer], head)
    return Translator(model, translator.subwords, translator.config, str(translator.device))


def attentions_of(model: Transformer) -> dict[str, list[MultiheadAttention]]:
    """The attentions of each type, layer by layer."""
    return {
        "encoder": [layer.attention for layer in model.encoder],
        "decoder": [layer.attention for layer in model.decoder],
        "cross": [layer.cross for layer in model.decoder],
    }


def check_head(translator: Translator, type: str, layer: int, head: int) -> None:
    """Refuse a head that the model does not have; counted from 1 in the message, as people count."""
    if type not in TYPES:
        raise ValueError(f"attention type is {type!r}; wanted one of {', '.join(TYPES)}")
    shape = translator.config.model
    layers = shape.encoder_layers if type == "encoder" else shape.decoder_layers
    if not (0 <= layer < layers and 0 <= head < shape.heads):
        raise ValueError(
            f"there is no head {head + 1} in layer {layer + 1}; "
            f"{type} attention has {layers} layers of {shape.heads} heads"
        )


@torch.no_grad()
def switch_off(attention: MultiheadAttention, head: int) -> None:
    """Put zeros into a copy of the projection that makes a head's values."""
    if attention.in_proj_weight is None:
        raise ValueError("the attention has separate projections; wanted one of a Transformer, whose are one matrix")
    first = 2 * attention.embed_dim + head * attention.head_dim  # rows: W_q, W_k, W_v
    for name in ("in_proj_weight", "in_proj_bias"):
        parameter = getattr(attention, name)
        if parameter is not None:
            changed = parameter.detach().clone()
            changed[first : first + attention.head_dim] = 0.0
            setattr(attention, name, nn.Parameter(changed, requires_grad=False))
