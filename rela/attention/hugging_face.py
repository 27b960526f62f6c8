"""Sparse attention inside a Hugging Face model, by the attention interface of `transformers`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rela.attention import checks
from rela.attention.dispatch import attend_normalised, attention_weights
from rela.attention.intervals import intervals_of, intervals_on, mask_with_intervals
from rela.attention.kinds import Kind
from rela.attention.norms import make_norm
from rela.attention.plans import Options, limits_of
from rela.attention.sparsity import check_target, keep_penalty, threshold_penalty

IMPLEMENTATION = "rela"
"""The name of this implementation in `transformers`."""
ATTACHED = "rela_attention"
"""The name of what is added to each attention: its norm is in the state dict, and trained."""
HEADS = ("num_heads", "num_attention_heads", "n_heads")
HEAD_SIZES = ("v_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim", "head_size")
FOREIGN = {
    "softcap": "attn_logit_softcapping",
    "s_aux": "sinks",
    "sinks": "sink_proj",  # Inkling 2: a sink for each query
    "block_indices": "indexer",  # MiniMax M3: blocks of keys that each query may look at
}
"""What some models' attention also does, and ours does not: as an argument, and as a module's attribute."""

SOFTMAX = Kind("softmax", "none")
COLLECTOR: Any = None
"""Where `transformers` keeps what it records of a forward, in releases that record it by hooks."""
HIDDEN = -50.0
"""A number that hides a key in a model's own mask, which is made for softmax: it leaves e⁻⁵⁰ of a weight. Models write
the lowest number of a type, -10,000 (MarkupLM) or -100 beside a learned bias (Swin)."""


class Attached(nn.Module):
    """What is added to an attention of `transformers`: the kind, its norm over the merged heads, θ."""

    def __init__(
        self,
        kind: Kind,
        heads: int,
        head_size: int,
        like: Tensor,
        threshold: float | str = 0.0,
        target_sparsity: float | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        learned = threshold == "learned"
        checks.check_own_threshold(kind, threshold)
        checks.check_options(kind, heads, 0.0 if learned else float(threshold), 0.0, backend)
        check_target(target_sparsity, threshold, kind)
        self.kind, self.backend, self.target_sparsity = kind, backend, target_sparsity
        self.norm = make_norm(kind.norm, heads * head_size, device=like.device, dtype=like.dtype)
        self.threshold: float | nn.Parameter = (
            nn.Parameter(torch.zeros_like(like[:1]).expand(heads).clone()) if learned else float(threshold)
        )
        self.penalty: Tensor | None = None
        self.open_forwards = 0

    def reset_parameters(self) -> None:
        """A learned θ begins at zero; the norm has its own `reset_parameters`."""
        if isinstance(self.threshold, nn.Parameter):
            nn.init.zeros_(self.threshold)

    def forward(self) -> float | Tensor:
        """θ; called, so that a hook that brings offloaded parameters to their device brings this one too."""
        return self.threshold

    def theta(self) -> float | Tensor:
        """θ; a number, which is no parameter, without a call of the module."""
        number: float | None = self.__dict__.get("threshold")
        return self() if number is None else number

    def store_penalty(self, query: Tensor, key: Tensor, options: Options) -> None:
        """Store the sparsity penalty of a training forward; its gradient moves the thresholds and nothing else."""
        assert self.target_sparsity is not None
        assert isinstance(options.threshold, Tensor)
        scale = query.size(-1) ** -0.5 if options.scale is None else options.scale
        given = *limits_of(query, key, options), options.threshold, self.target_sparsity
        keep_penalty(self, threshold_penalty(query, key, scale, *given))

    def itself(self) -> Attached:
        """This module: asked of the wrapper that PEFT puts around it (`modules_to_save`), the adapter's copy."""
        return self

    def __getstate__(self) -> dict:
        # The penalty belongs to one forward and its graph, neither of which can be copied or stored.
        return {**super().__getstate__(), "penalty": None, "open_forwards": 0}

    def __setstate__(self, state: dict) -> None:
        """A pickled model may come to a process in which `transformers` does not know our attention yet."""
        from rela.attention.pretrained import register_transformers

        super().__setstate__(state)
        register_transformers()


def is_hugging_face(module: nn.Module) -> bool:
    """Whether a module is a model of `transformers` whose attention can be chosen, told without importing that."""
    return hasattr(module, "set_attn_implementation")


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that leave their attention to the interface, by name: their `forward` looks it up."""
    return {
        name: module
        for name, module in model.named_modules()
        if hasattr(forward := inspect.unwrap(type(module).forward), "__code__")
        and "ALL_ATTENTION_FUNCTIONS" in forward.__code__.co_names
    }


def not_exchanged(model: nn.Module, exchanged: Iterable[str]) -> dict[str, str]:
    """The attentions of Hugging Face models inside `model` that are not exchanged, by name, and why.

    An attention is what its class calls one, if it has weights and neither holds nor is held by an exchanged one.
    """
    names, left = set(exchanged), dict[str, str]()
    inside = {id(module) for part in model.modules() if is_hugging_face(part) for module in part.modules()}
    for name, module in model.named_modules():
        if "Attention" not in type(module).__name__ or id(module) not in inside or not list(module.parameters()):
            continue
        if not any(holds(one, name) or holds(name, one) for one in names | left.keys()):
            left[name] = f"{type(module).__name__} does not use the attention interface of transformers"
    return left


def holds(outer: str, inner: str) -> bool:
    """Whether the module named `inner` is the one named `outer` or lies inside it."""
    return inner == outer or inner.startswith(f"{outer}.")


def shape_of(module: Any, name: str) -> tuple[int, int]:
    """Heads of an attention and the size of each one's values; classes do not agree on where they write them down."""
    config = getattr(module, "config", None)
    heads = [*(getattr(module, word, None) for word in HEADS), getattr(config, "num_attention_heads", None)]
    sizes = [getattr(module, word, None) for word in HEAD_SIZES]
    found = [next((value for value in values if isinstance(value, int)), None) for values in (heads, sizes)]
    if found[0] is None or found[1] is None:
        raise ValueError(f"{name} is a {type(module).__name__} that does not tell its heads and their size")
    return found[0], found[1]


def check_scores(module: nn.Module, name: str, kind: Kind) -> None:
    """Refuse an attention that does more with its scores than ours does."""
    handed_on = keywords_of(type(module).forward)
    if strange := [
        attribute
        for argument, attribute in FOREIGN.items()
        if argument in handed_on and getattr(module, attribute, None) is not None
    ]:
        raise ValueError(
            f"{name} is a {type(module).__name__} with {', '.join(strange)}, which {kind.weights} has no place for"
        )


def keywords_of(function: Callable) -> set[str]:
    """The names, among other constants, of the keyword arguments that a function hands on."""
    constants = inspect.unwrap(function).__code__.co_consts
    return {word for constant in constants for word in (constant if isinstance(constant, tuple) else (constant,))}


def some_weight(module: nn.Module, model: nn.Module) -> Tensor:
    """A parameter of an attention, flat: what is attached has its device and type, for layers may be on many devices.

    The first of floating type, which quantised weights are not; an attention without any is served by its model's. Of
    weights that are offloaded, which accelerate brings for a forward, the device is the one that it brings them to.
    """
    parameters = (parameter for part in (module, model) for parameter in part.parameters())
    found = next(parameter for parameter in parameters if parameter.is_floating_point()).detach().flatten()
    device = brought_to(module) if found.is_meta else None
    return found if device is None else torch.empty(1, dtype=found.dtype, device=device)


def brought_to(module: nn.Module) -> Any:
    """The device to which hooks of accelerate bring the parameters of a module, or None without such hooks."""
    hooks = [getattr(part, "_hf_hook", None) for part in module.modules()]
    every = [one for hook in hooks for one in getattr(hook, "hooks", (hook,))]
    devices = (getattr(one, "execution_device", None) for one in every)
    return next((device for device in devices if device is not None), None)


def make_attached(
    model: nn.Module, kind: Kind, only: Collection[str] | None = None, **options: Any
) -> dict[str, Attached]:
    """What each attention of a model, or those named in `only`, needs, by the attention's name; nothing is changed."""
    made = {}
    for name, module in attentions(model).items():
        if only is not None and name not in only:
            continue
        check_scores(module, name, kind)
        made[name] = Attached(kind, *shape_of(module, name), some_weight(module, model), **options)
    return made


def attach(model: nn.Module, made: Mapping[str, Attached]) -> Callable[[], None]:
    """Add to each attention what was made for it, and use it; the function returned puts back what was there before."""
    modules = {name: model.get_submodule(name) for name in made}
    before = {name: getattr(module, ATTACHED, None) for name, module in modules.items()}
    put_back = choose(model, modules.values())
    for name, module in modules.items():
        module.add_module(ATTACHED, made[name].train(module.training))

    def undo() -> None:
        put_back()
        for name, module in modules.items():
            delattr(module, ATTACHED)
            if before[name] is not None:
                module.add_module(ATTACHED, before[name])

    return undo


def check_last(model: nn.Module, made: Mapping[str, Attached]) -> None:
    """Refuse where a later exchange has replaced what was made for an attention."""
    for name, mine in made.items():
        there = getattr(model.get_submodule(name), ATTACHED, None)
        if there is None or (isinstance(there, Attached) and there is not mine):
            raise ValueError(f"{name} was exchanged again; wanted the later exchange to be undone first, and once")


def configurations(parts: Iterable[Any]) -> list[Any]:
    """The configurations of models and attentions and those inside them, each once."""
    found: dict[int, Any] = {}
    waiting = [part.config for part in parts if getattr(part, "config", None) is not None]
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            waiting += [inner for name in config.sub_configs if (inner := getattr(config, name, None)) is not None]
    return list(found.values())


def choose(model: nn.Module, modules: Iterable[Any]) -> Callable[[], None]:
    """Choose our implementation in each Hugging Face model inside `model` and in the modules that look it up.

    Where one of them refuses, all stay as they were. The function returned puts back what was chosen before.
    """
    parts: list[Any] = [part for part in model.modules() if is_hugging_face(part)]
    before = [(config, config._attn_implementation_internal) for config in configurations((*parts, *modules))]

    def put_back() -> None:
        for config, implementation in before:
            config._attn_implementation_internal = implementation

    try:
        for part in parts:
            part.set_attn_implementation(IMPLEMENTATION)
    except Exception:
        put_back()
        raise
    # Some attentions hold a copy of the configuration, out of their model's reach (T5, models made of two others).
    for attention in modules:
        attention.config._attn_implementation_internal = IMPLEMENTATION
    return put_back


def mask_of(*, config: Any = None, allow_is_causal_skip: bool = True, **arguments: Any) -> Tensor | None:
    """What `transformers` calls for a mask: [B, 1, T, S], True where a query may look, or None where `forward` knows.

    It knows that a sequence is causal, from the attention's `is_causal`, and then takes queries and keys to end
    together. So a causal mask is left out only where they do, which the keys of a static cache do not. What masks a
    model needs is in its configuration (`rela.attention.pretrained.masks_of`).
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    needed = (getattr(config, "rela", None) or {}).get("masks")
    if needed == "additive":
        return eager_mask(**arguments, config=config)
    last_query = arguments.get("q_offset", torch.nan) + arguments.get("q_length", torch.nan)
    together = not isinstance(last_query, Tensor) and last_query == arguments["kv_offset"] + arguments["kv_length"]
    skip = allow_is_causal_skip and together and needed == "implied"
    found = intervals_of(**arguments)
    if found is None:
        return sdpa_mask(**arguments, config=config, allow_is_causal_skip=skip)
    return mask_with_intervals(found, **arguments, causal_skip=skip)


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
    if ours is None and getattr(getattr(module, "config", None), "rela", None) is None:
        raise ValueError(f"this {type(module).__name__} was not given to rela.replace_attention")
    if strange := [name for name in FOREIGN if others.get(name) is not None]:
        raise ValueError(f"{type(module).__name__} brings {', '.join(strange)}, which this attention has no place for")
    looks_at_weights = bool(others.get("output_attentions")) or weights_are_recorded()
    if ours is None:
        # Another part of its model was given, and shares its configuration.
        limits = attention_mask, scaling, dropout, is_causal
        return softmax(module, query, key, value, *limits, looks_at_weights=looks_at_weights, **others)
    ours = ours.itself()
    query, key, value = of_one_type(query, key, value)
    queries, keys = query.size(2), key.size(2)
    causal = hides_later(module, is_causal, attention_mask, queries)
    if causal and queries != keys:
        raise ValueError(
            f"{type(module).__name__} is causal with {queries} queries, {keys} keys and no mask; wanted a mask"
        )
    if others.get("indices") is not None:
        attention_mask = only_chosen_keys(others["indices"], attention_mask, keys)
    bias = others.get("position_bias")
    intervals = None if looks_at_weights else intervals_on(attention_mask, query, key)
    lengths = starts = window = None
    if intervals is None:
        mask = with_bias(attention_mask, bias, ours.kind)
    else:
        _, causal, starts, lengths, window, *_ = intervals
        if intervals.keys < keys:  # a slice of all would be one more node of autograd
            key, value = key[:, :, : intervals.keys], value[:, :, : intervals.keys]
            bias = None if bias is None else bias[..., : intervals.keys]
        mask = bias
    rate = dropout if module.training else 0.0
    options = Options(ours.kind, mask, lengths, starts, window, causal, scaling, ours.theta(), rate, ours.backend)
    if module.training and ours.target_sparsity is not None:
        ours.store_penalty(query, key, options)
    # A sum over rectified weights outgrows float16, and the norm brings it back.
    wide = query.dtype == torch.float16 and ours.norm is not None and not ours.kind.is_distribution
    context = attend_normalised(query, key, value, options, ours.norm, wide, merged=False)
    return context, weights_of(query, key, options) if looks_at_weights else None


def of_one_type(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as they are, or in autocast's type where it has left them in several.

    It leaves rotated queries and keys in float32, the type of a model's positions, beside values of half precision.
    PyTorch's own attention would cast all three.
    """
    if query.dtype == key.dtype == value.dtype or not torch.is_autocast_enabled(query.device.type):
        return query, key, value
    kind = torch.get_autocast_dtype(query.device.type)
    return query.to(kind), key.to(kind), value.to(kind)


def weights_are_recorded() -> bool:
    """Whether `transformers` records the weights of this forward: not every model hands on that they are asked for."""
    if COLLECTOR is None or (torch.compiler.is_compiling() and not COLLECTOR.compiling):
        return False
    recorded = COLLECTOR.get()
    return recorded is not None and any("attentions" in name for name in recorded)


def hides_later(module: nn.Module, is_causal: bool | None, mask: Tensor | None, queries: int) -> bool:
    """Whether a call is causal without a mask; as for SDPA, a mask says all."""
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    return queries > 1 and mask is None and bool(causal)  # the number first: what `and` gives is then no symbol


def weights_of(query: Tensor, key: Tensor, options: Options) -> Tensor:
    """The weights [B, H, T, S] of a call."""
    same = "mask", "key_lengths", "key_starts", "window", "causal", "scale", "threshold"
    return attention_weights(query, key, kind=options.kind.weights, **{name: getattr(options, name) for name in same})


def softmax(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *limits: Any, looks_at_weights: bool, **others: Any
) -> tuple[Tensor, Tensor | None]:
    """What PyTorch's attention gives an attention that was not exchanged; it takes our masks."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    mask, scaling, dropout, is_causal = limits
    if others.get("indices") is not None:
        mask = only_chosen_keys(others["indices"], mask, key.size(2))
    given = {"scaling": scaling, "dropout": dropout if module.training else 0.0, "is_causal": is_causal}
    context, _ = sdpa_attention_forward(module, query, key, value, mask, **given, **others)
    if not looks_at_weights:
        return context, None
    causal = hides_later(module, is_causal, mask, query.size(2))
    mask = with_bias(mask, others.get("position_bias"), SOFTMAX)
    return context, weights_of(query, key, Options(SOFTMAX, mask, causal=causal, scale=scaling))


def only_chosen_keys(indices: Tensor, mask: Tensor | None, keys: int) -> Tensor:
    """A mask [B, 1, T, S] that shows a query only keys at `indices` [B, T, k], as the indexer of DeepSeek V3.2 does."""
    chosen = torch.zeros(*indices.shape[:2], keys, dtype=torch.bool, device=indices.device)
    chosen = chosen.scatter(-1, indices.long(), True).unsqueeze(1)
    if mask is None:
        return chosen
    return chosen & mask if mask.dtype == torch.bool else mask.masked_fill(~chosen, -torch.inf)


def with_bias(mask: Tensor | None, bias: Tensor | None, kind: Kind) -> Tensor | None:
    """One mask of a mask and of what a model adds to its scores (T5 the distance of two words)."""
    if mask is not None and mask.is_floating_point():
        # Such a number hides a key only from a distribution: leaky relu, for one, would make a weight of it.
        hidden = torch.finfo(mask.dtype).min / 2 if kind.is_distribution else HIDDEN
        mask = mask.masked_fill(mask <= hidden, -torch.inf)
    if mask is None or bias is None:
        return bias if mask is None else mask
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
