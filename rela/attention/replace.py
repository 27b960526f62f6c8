"""replace_attention(): sparse attention inside a model somebody else wrote."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rela.attention.kinds import Kind
from rela.attention.multihead import MultiheadAttention


@dataclass(frozen=True)
class Replacement:
    """What `replace_attention` did: the model, and the names of the attentions it exchanged."""

    module: nn.Module
    names: tuple[str, ...]
    kind: str | Kind

    def __str__(self) -> str:
        listed = ", ".join(name or "(the module itself)" for name in self.names)
        return f"{len(self.names)} attentions are now {self.kind}: {listed}"


def replace_attention(module: nn.Module, kind: str | Kind = "rela-g", **options) -> Replacement:
    """Exchange every `nn.MultiheadAttention` inside `module`, in place, for one of `kind` with the same projections.

    `options` go to `MultiheadAttention` (threshold, backend, …). The answer names what was exchanged; if
    `module` itself is an `nn.MultiheadAttention`, the new one is `.module` of the answer. ReLA is a drop-in by
    shape, not by function: a model trained with softmax must be trained on after the exchange.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; wanted a torch.nn.Module")
    if isinstance(module, nn.MultiheadAttention):
        return Replacement(from_torch(module, kind, **options), ("",), kind)
    exchanged: dict[nn.Module, MultiheadAttention] = {}  # one attention used in two places stays one
    names = []
    for parent_name, parent in list(module.named_modules()):
        for child_name, child in list(parent.named_children()):
            if isinstance(child, nn.MultiheadAttention):
                if child not in exchanged:
                    exchanged[child] = from_torch(child, kind, **options)
                setattr(parent, child_name, exchanged[child])
                names.append(f"{parent_name}.{child_name}".lstrip("."))
    if not names:
        raise ValueError(f"{type(module).__name__} holds no torch.nn.MultiheadAttention to replace")
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.enable_nested_tensor = part.use_nested_tensor = False  # nested tensors are for torch's own fused layer
    return Replacement(module, tuple(names), kind)


def from_torch(old: nn.MultiheadAttention, kind: str | Kind = "rela-g", **options) -> MultiheadAttention:
    """A MultiheadAttention of `kind` that holds the projections of `old`."""
    new = MultiheadAttention(
        old.embed_dim, old.num_heads, dropout=old.dropout, bias=old.in_proj_bias is not None,
        add_bias_kv=old.bias_k is not None, add_zero_attn=old.add_zero_attn, kdim=old.kdim, vdim=old.vdim,
        batch_first=old.batch_first, device=old.out_proj.weight.device, dtype=old.out_proj.weight.dtype,
        kind=kind, **options,
    )  # fmt: skip
    missing, unexpected = new.load_state_dict(old.state_dict(), strict=False)
    assert not unexpected and all(name.startswith(("norm.", "threshold")) for name in missing)
    for name, parameter in old.named_parameters():
        new.get_parameter(name).requires_grad_(parameter.requires_grad)
    return new.train(old.training)
