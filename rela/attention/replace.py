"""replace_attention(): sparse attention inside a model somebody else wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from rela.attention.hugging_face import is_hugging_face, replace_in_transformers
from rela.attention.kinds import Kind
from rela.attention.multihead import MultiheadAttention


@dataclass(frozen=True)
class Replacement:
    """What `replace_attention` did: the model, and the names of the attentions it exchanged."""

    module: nn.Module
    names: tuple[str, ...]
    kind: str | Kind
    what: str = "torch.nn.MultiheadAttention"

    def __str__(self) -> str:
        listed = ", ".join(name or "(the module itself)" for name in self.names)
        kind = self.kind if isinstance(self.kind, str) else f"{self.kind.weights}+{self.kind.norm}"
        return f"{len(self.names)} × {self.what}, now {kind}: {listed}"


def replace_attention(module: nn.Module, kind: str | Kind = "rela-g", **options: Any) -> Replacement:
    """Exchange every `nn.MultiheadAttention` inside `module`, in place, for one of `kind` with the same projections.

    `options` go to `MultiheadAttention` (threshold, backend, …). The answer names what was exchanged; if
    `module` itself is an `nn.MultiheadAttention`, the new one is `.module` of the answer. A model of Hugging Face
    keeps its attention modules, whose inside becomes ours; its options are threshold and backend. ReLA is a
    drop-in by shape, not by function: a model trained with softmax must be trained on after the exchange.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; wanted a torch.nn.Module")
    if isinstance(module, nn.MultiheadAttention):
        return Replacement(from_torch(module, kind, **options), ("",), kind)
    places = [
        (f"{parent_name}.{name}".lstrip("."), parent, name, child)
        for parent_name, parent in module.named_modules()
        for name, child in parent._modules.items()  # named_children leaves out a child's second name
        if isinstance(child, nn.MultiheadAttention)
    ]
    if not places and is_hugging_face(module):
        found = replace_in_transformers(module, kind, **options)
        return Replacement(module, tuple(found), kind, " or ".join(sorted(set(found.values()))))
    if not places:
        raise ValueError(f"{type(module).__name__} holds no torch.nn.MultiheadAttention to replace")
    # All are made before the first is put in place, so that an error leaves the model as it was; one attention
    # used in two places stays one.
    exchanged: dict[nn.Module, MultiheadAttention] = {}
    for path, _, _, child in places:
        if child not in exchanged:
            exchanged[child] = from_torch(child, kind, path, **options)
    for _, parent, name, child in places:
        setattr(parent, name, exchanged[child])
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.enable_nested_tensor = part.use_nested_tensor = False  # nested tensors are for torch's own fused layer
    return Replacement(module, tuple(path for path, *_ in places), kind)


def from_torch(
    old: nn.MultiheadAttention, kind: str | Kind = "rela-g", path: str = "module", **options: Any
) -> MultiheadAttention:
    """A MultiheadAttention of `kind` that holds the projections of `old`; `path` names it in errors."""
    if options.get("num_kv_heads") not in (None, old.num_heads):
        raise ValueError(f"num_kv_heads is {options['num_kv_heads']}; wanted {old.num_heads}, to keep the projections")
    new = MultiheadAttention(
        old.embed_dim,
        old.num_heads,
        dropout=old.dropout,
        bias=old.in_proj_bias is not None,
        add_bias_kv=old.bias_k is not None,
        add_zero_attn=old.add_zero_attn,
        kdim=old.kdim,
        vdim=old.vdim,
        batch_first=old.batch_first,
        device=old.out_proj.weight.device,
        dtype=old.out_proj.weight.dtype,
        kind=kind,
        **options,
    )
    if extra := old.state_dict().keys() - new.state_dict().keys():
        raise ValueError(f"{path} also holds {', '.join(sorted(extra))}; wanted a plain torch.nn.MultiheadAttention")
    new.load_state_dict(old.state_dict(), strict=False)  # what is missing are the norm and the threshold
    for name, parameter in old.named_parameters():
        new.get_parameter(name).requires_grad_(parameter.requires_grad)
    return new.train(old.training)
