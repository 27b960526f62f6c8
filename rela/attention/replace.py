"""replace_attention(): sparse attention inside a model of another library."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from rela.attention.hugging_face import attach, attentions, check_last, is_hugging_face, make_attached, not_exchanged
from rela.attention.kinds import Kind, kind_of, name_of
from rela.attention.multihead import MultiheadAttention
from rela.attention.pretrained import configure, keep_values, register_transformers
from rela.attention.sparsity import sum_penalties

TORCH = "torch.nn.MultiheadAttention"
DISTRIBUTED = "DistributedDataParallel"
"""The class of modules that keep the parameters of a model alike in all processes: those it had when it was wrapped."""
SHARDED = {"FullyShardedDataParallel", "FSDPModule"}
"""Classes of modules that hold parts of their parameters, and gather them before their forward."""
COMPILED = "OptimizedModule"
"""The class of what `torch.compile` makes of a module: it calls the module it was given, whatever it holds later."""
Location = tuple[str, nn.Module, str, nn.MultiheadAttention]
"""An attention of PyTorch inside a model: its whole name, its parent, its name there, itself."""
# Shared by the old and the new module, so that a handle got from the old removes its hook from both.
HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


@dataclass(frozen=True)
class Replacement:
    """What `replace_attention` did: the model, and the names of the attentions it exchanged.

    `left` are the attentions it could not exchange, and why. `added` are the parameters that came with the new
    attentions, norms and thresholds: an optimiser made before must be given them.
    """

    module: nn.Module
    names: tuple[str, ...]
    kind: str | Kind
    what: str = TORCH
    left: Mapping[str, str] = field(default_factory=dict, compare=False)
    added: tuple[nn.Parameter, ...] = field(default=(), repr=False, compare=False)
    put_back: Callable[[], nn.Module] | None = field(default=None, repr=False, compare=False)

    def undo(self) -> nn.Module:
        """The model with its old attentions back in place, their projections as trained since."""
        if self.put_back is None:
            raise ValueError("this Replacement was not made by rela.replace_attention; wanted one that was")
        return self.put_back()

    def __str__(self) -> str:
        listed = ", ".join(name or "(the module itself)" for name in self.names)
        kind = self.kind if isinstance(self.kind, str) else f"{self.kind.weights}+{self.kind.norm}"
        left = f"; left as they were: {self.what_is_left()}" if self.left else ""
        return f"{len(self.names)} × {self.what}, now {kind}: {listed}{left}"

    def what_is_left(self) -> str:
        return ", ".join(f"{name} ({reason})" for name, reason in self.left.items())


def replace_attention(module: nn.Module, kind: str | Kind = "rela-g", **options: Any) -> Replacement:
    """Exchange every attention inside `module`, in place, for one of `kind` with the same projections.

    Exchanged is each `nn.MultiheadAttention`, and what a model of Hugging Face computes inside its attention modules,
    which stay. `options` go to `MultiheadAttention`; Hugging Face's take threshold, target_sparsity and backend. The
    answer names what was exchanged and what could not be, and can `undo()` it; if `module` itself is an
    `nn.MultiheadAttention`, the new one is `.module` of the answer. Parameters stay the same objects. ReLA is a drop-in
    by shape, not by function: a model trained with softmax must be trained on after the exchange.
    """
    replacement = exchange(module, kind, None, **options)
    keep_values(replacement.module)
    return replacement


def exchange(module: nn.Module, kind: str | Kind, only: Collection[str] | None, **options: Any) -> Replacement:
    """`replace_attention` of the attentions named in `only`, or of all."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; wanted a torch.nn.Module")
    if isinstance(module, nn.MultiheadAttention):
        new = from_torch(module, kind, **options)
        their_own = added_parameters(module, new)
        check_not_distributed(module, their_own, exchanged=True)
        return Replacement(new, ("",), kind, added=their_own, put_back=lambda: as_trained(module, new))
    locations = torch_attentions(module, only)
    check_not_compiled(locations)
    # All are made before the first is put in place, so that an error leaves the model as it was; one attention
    # used in two places stays one.
    hugging_face = any(is_hugging_face(part) for part in module.modules())
    attached = make_attached(module, kind_of(kind), only, **options) if hugging_face else {}
    exchanged: dict[nn.MultiheadAttention, MultiheadAttention] = {}
    for path, _, _, child in locations:
        if child not in exchanged:
            exchanged[child] = from_torch(child, kind, path, **options)
    if not locations and not attached:
        missing = "leaves no attention to the interface of transformers" if hugging_face else f"holds no {TORCH}"
        raise ValueError(f"{type(module).__name__} {missing} to replace{advice(module)}")
    added = [parameter for new in attached.values() for parameter in new.parameters()]
    added += [parameter for old, new in exchanged.items() for parameter in added_parameters(old, new)]
    check_not_distributed(module, added, bool(locations))
    names = (*attached, *(path for path, *_ in locations))
    left = not_exchanged(module, {*names, *attentions(module)}) if hugging_face else {}
    undone: list[Callable[[], object]] = []
    refusals: list[Callable[[], None]] = [partial(check_last, module, attached)]
    classes = {name: type(module.get_submodule(name)).__name__ for name in attached}
    if hugging_face:
        register_transformers()
        undone.append(attach(module, attached))
        put_back_options, check_options = configure(module, saved_options(kind, **options), left)
        undone.append(put_back_options)
        refusals.append(check_options)
    undone.append(sum_penalties(forwards_of(module, **options)))
    undone += [put_in_place(module, locations, exchanged), lambda: [refuse() for refuse in refusals]]

    def put_back() -> nn.Module:
        while undone:
            undone[-1]()
            undone.pop()
        return module

    what = " or ".join(sorted({*classes.values(), *([TORCH] if locations else [])}))
    replacement = Replacement(module, names, kind, what, left, tuple(added), put_back)
    if left:
        warnings.warn(f"rela.replace_attention left {replacement.what_is_left()}", stacklevel=3)
    return replacement


def advice(module: nn.Module) -> str:
    """What to exchange in place of layers of a model of `transformers`, whose attention is chosen for a model."""
    return (
        "; wanted a model of transformers around its layers, whole or a part of another" if attentions(module) else ""
    )


def check_not_distributed(module: nn.Module, added: Collection[nn.Parameter], exchanged: bool) -> None:
    """Refuse new parameters where a model already averages its gradients over processes: it would leave them out.

    `exchanged` says that there are new modules: FSDP gathers the parameters of those alone that it knows.
    """
    for part in module.modules() if added or exchanged else ():
        # By name: FSDP2 gives a module a class of its own, and to import these packages takes a second.
        names = {cls.__name__ for cls in type(part).__mro__}
        if names & SHARDED:
            raise ValueError(
                f"module holds a {type(part).__name__}, which would not gather the parameters of new attentions; "
                "wanted the exchange to come first"
            )
        if added and DISTRIBUTED in names:
            raise ValueError(
                f"module holds a {type(part).__name__}, which would not average the gradients of new norms and "
                "thresholds over processes; wanted the exchange to come first"
            )


def check_not_compiled(locations: Collection[Location]) -> None:
    """Refuse attentions that `torch.compile` was given by themselves: what it made of them would go on calling them."""
    for path, parent, _, child in locations:
        if COMPILED in {cls.__name__ for cls in type(parent).__mro__}:
            raise ValueError(
                f"{path} is a {type(child).__name__} that torch.compile was given, which would go on calling it; "
                "wanted the exchange to come first"
            )


def torch_attentions(module: nn.Module, only: Collection[str] | None) -> list[Location]:
    """Each `nn.MultiheadAttention` inside a module, or those named in `only`."""
    locations = [
        (f"{parent_name}.{name}".lstrip("."), parent, name, child)
        for parent_name, parent in module.named_modules()
        for name, child in parent._modules.items()  # named_children leaves out a child's second name
        if isinstance(child, nn.MultiheadAttention)
    ]
    return locations if only is None else [location for location in locations if location[0] in only]


def forwards_of(module: nn.Module, target_sparsity: float | None = None, **others: Any) -> list[nn.Module]:
    """The modules whose forward is one of a model, whole or in part, where its attentions leave penalties."""
    if target_sparsity is None:
        return []
    return [part for part in module.modules() if part is module or is_hugging_face(part)]


def put_in_place(
    module: nn.Module,
    locations: list[Location],
    exchanged: Mapping[nn.MultiheadAttention, MultiheadAttention],
) -> Callable[[], None]:
    """Exchange the children at `locations`; the function returned puts the old ones back."""
    for _, parent, name, child in locations:
        setattr(parent, name, exchanged[child])
    encoders = [part for part in module.modules() if isinstance(part, nn.TransformerEncoder)] if locations else []
    nested = [(part, part.enable_nested_tensor, part.use_nested_tensor) for part in encoders]
    for part in encoders:
        part.enable_nested_tensor = part.use_nested_tensor = False  # nested tensors are for torch's own fused layer

    def undo() -> None:
        for path, _, _, child in locations:
            check_plain(child, exchanged[child], path)
        for _, parent, name, child in locations:
            setattr(parent, name, as_trained(child, exchanged[child]))
        for part, enabled, used in nested:
            part.enable_nested_tensor, part.use_nested_tensor = enabled, used

    return undo


def saved_options(
    kind: str | Kind, threshold: float | str = 0.0, target_sparsity: float | None = None, backend: str = "auto"
) -> dict[str, Any]:
    """The options of an exchange as a configuration holds them."""
    name = name_of(kind_of(kind))
    return {"kind": name, "threshold": threshold, "target_sparsity": target_sparsity, "backend": backend}


def from_torch(
    old: nn.MultiheadAttention, kind: str | Kind = "rela-g", path: str = "module", **options: Any
) -> MultiheadAttention:
    """A MultiheadAttention of `kind` that shares the projections and hooks of `old`; `path` names it in errors."""
    if options.get("num_kv_heads") not in (None, old.num_heads):
        raise ValueError(f"num_kv_heads is {options['num_kv_heads']}; wanted {old.num_heads}, to keep the projections")
    # On the module itself: what a user put there, or accelerate, which brings offloaded parameters before a forward.
    if type(old).forward is not nn.MultiheadAttention.forward or "forward" in vars(old):
        raise ValueError(f"{path} is a {type(old).__name__} with its own forward; wanted a plain {TORCH}")
    # PyTorch's attention reads the weight of its output projection and never calls it; ours calls it.
    if not isinstance(old.out_proj, nn.Linear) or type(old.out_proj).forward is not nn.Linear.forward:
        came = type(old.out_proj).__name__
        raise ValueError(f"{path}.out_proj is a {came} with its own forward; wanted a plain torch.nn.Linear")
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
        raise ValueError(f"{path} also holds {', '.join(sorted(extra))}; wanted a plain {TORCH}")
    # The same parameters, not copies: what they are tied to and the optimisers that hold them stay valid.
    for name, parameter in old.named_parameters(recurse=False):
        setattr(new, name, parameter)
    new.out_proj = old.out_proj
    for name in HOOKS:
        setattr(new, name, getattr(old, name))
    return new.train(old.training)


def as_trained(old: nn.MultiheadAttention, new: MultiheadAttention, path: str = "module") -> nn.MultiheadAttention:
    """`old` with the projections and the mode of `new`.

    They have held the same objects since the exchange, unless somebody gave `new` others: a state dict that is
    assigned, memory for what was made on no device.
    """
    check_plain(old, new, path)
    for name in own_parameters(old):
        setattr(old, name, new._parameters[name])
    old._modules["out_proj"] = new.out_proj
    return old.train(new.training)


def check_plain(old: nn.MultiheadAttention, new: MultiheadAttention, path: str) -> None:
    """Refuse projections that PyTorch's attention could not take back: pruned, parametrised, adapted, quantised."""
    for name in own_parameters(old):
        if name not in new._parameters:
            raise ValueError(f"{path}.{name} is computed from other parameters; wanted a plain one, to put it back")
    if not isinstance(new.out_proj, nn.Linear):
        came = type(new.out_proj).__name__
        raise ValueError(f"{path}.out_proj is a {came}; wanted a torch.nn.Linear, to put it back")


def own_parameters(module: nn.Module) -> list[str]:
    """The names of the parameters that a module itself holds."""
    return [name for name, _ in module.named_parameters(recurse=False)]


def added_parameters(old: nn.Module, new: nn.Module) -> tuple[nn.Parameter, ...]:
    """The parameters that `new` has and `old` has not."""
    known = {id(parameter) for parameter in old.parameters()}
    return tuple(parameter for parameter in new.parameters() if id(parameter) not in known)
