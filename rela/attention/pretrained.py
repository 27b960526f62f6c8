"""An exchanged Hugging Face model, saved and loaded by `save_pretrained` and `from_pretrained`.

The configuration says what was exchanged, in `rela`, and names our attention, in `attn_implementation`. Both are
written to config.json. Where that name is not registered with `transformers`, it refuses it; where it is, a model built
from such a configuration gets its attentions exchanged before its weights are loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from torch import nn

from rela.attention import hugging_face
from rela.attention.hugging_face import (
    ATTACHED,
    IMPLEMENTATION,
    Attached,
    attentions,
    configurations,
    is_hugging_face,
)
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import RMSNorm

OPTIONS = ("kind", "threshold", "target_sparsity", "backend")
WRITTEN = ("rela", "attn_implementation")
"""What is written to a configuration."""


def register_transformers() -> None:
    """Make the attentions of this library known to `transformers`, so that `from_pretrained` loads exchanged models."""
    from transformers import AttentionInterface, PreTrainedModel
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, hugging_face.forward)
    AttentionMaskInterface.register(IMPLEMENTATION, hugging_face.mask_of)
    original, original_save = PreTrainedModel.post_init, PreTrainedModel.save_pretrained
    if getattr(original, "exchanges_attention", False):
        return

    @functools.wraps(original)
    def post_init(model: Any) -> None:
        original(model)
        exchange_as_configured(model)

    @functools.wraps(original_save)
    def save_pretrained(model: Any, *arguments: Any, **options: Any) -> Any:
        name_exchanged(model)
        return original_save(model, *arguments, **options)

    post_init.exchanges_attention = True  # type: ignore[attr-defined]
    PreTrainedModel.post_init, PreTrainedModel.save_pretrained = post_init, save_pretrained
    PreTrainedModel._initialize_weights = initialising_ours(PreTrainedModel._initialize_weights)


def initialising_ours(original: Callable[..., None]) -> Callable[..., None]:
    """`_initialize_weights` of a model that knows our modules, where weights to be loaded are missing.

    Models initialise by the name of a class: Gemma takes ours for a norm of its own, others leave it as memory was.
    """

    @functools.wraps(original)
    def initialise(model: Any, module: nn.Module, *arguments: Any, **options: Any) -> None:
        if not isinstance(module, (Attached, RMSNorm)):
            original(model, module, *arguments, **options)
        elif not getattr(module, "_is_hf_initialized", False):
            module.reset_parameters()  # `transformers` has guarded the functions of nn.init: what is loaded stays
            module._is_hf_initialized = True  # type: ignore[assignment]

    return initialise


def exchange_as_configured(model: Any) -> None:
    """Exchange the attentions of a model just built, where its configuration says so and it is not done yet."""
    from rela.attention.replace import exchange

    options = getattr(model.config, "rela", None)
    if options is None or model.config._attn_implementation != IMPLEMENTATION:
        return
    model.config.attn_implementation = IMPLEMENTATION  # a configuration does not keep what it was read from
    only = options.get("names")
    if only is not None:  # as the model that was saved knows them, which may be one around this one
        only = {*only, *(name.removeprefix(f"{model.base_model_prefix}.") for name in only)}
    found = {name for name, attention in attentions(model).items() if not hasattr(attention, ATTACHED)}
    found |= {name for name, part in model.named_modules() if isinstance(part, nn.MultiheadAttention)}
    if found if only is None else found & only:
        exchange(model, only=only, **{name: options[name] for name in OPTIONS})
        if only is not None:  # for the model around this one
            model.config.rela["names"] = options["names"]


def name_exchanged(model: Any) -> None:
    """Write to the configuration of a model the names of its exchanged attentions, where not all are."""
    looking: dict[str, Any] = {**attentions(model)}
    exchanged = {name: attention for name, attention in looking.items() if hasattr(attention, ATTACHED)}
    if not exchanged:
        return
    options = next(iter(exchanged.values())).config.rela
    model.config.rela = {name: value for name, value in options.items() if name != "names"}
    model.config.attn_implementation = IMPLEMENTATION
    if len(exchanged) < len(looking):
        ours = [name for name, part in model.named_modules() if isinstance(part, MultiheadAttention)]
        model.config.rela["names"] = [*exchanged, *ours]


def configure(model: nn.Module, options: dict[str, Any], left: Collection[str]) -> Callable[[], None]:
    """Write to the configurations inside `model` what was exchanged; the function returned undoes it.

    `left` are the names of attentions that were not exchanged.
    """
    parts: list[Any] = [part for part in model.modules() if is_hugging_face(part)]
    # Some attentions hold a copy of the configuration, as T5's do.
    configs = configurations((*parts, *attentions(model).values()))
    before = [(config, {name: vars(config).get(name) for name in WRITTEN}) for config in configs]
    masks = masks_of(parts, [model.get_submodule(name) for name in left])
    for config in configs:
        config.rela = {**options, "masks": masks.get(id(config), "boolean")}
        config.attn_implementation = IMPLEMENTATION

    def put_back() -> None:
        for config, values in before:
            for name, value in values.items():
                delattr(config, name)
                if value is not None:
                    setattr(config, name, value)

    return put_back


def masks_of(parts: Collection[Any], left: Collection[nn.Module]) -> dict[int, str]:
    """The masks that a model needs, by the id of its configuration.

    "implied": a causal mask may be left out where `is_causal` of an attention says as much. "boolean": it may not, for
    models never made for PyTorch's own attention do not tell. "additive": attentions that were left add it to scores.
    """
    found: dict[int, str] = {}
    for part in parts:
        inside = {id(module) for module in part.modules()}
        needed = "additive" if any(id(module) in inside for module in left) else "boolean"
        if needed == "boolean" and getattr(part, "_supports_sdpa", False):
            needed = "implied"
        for config in configurations([part]):
            found[id(config)] = min(needed, found.get(id(config), needed))  # additive before boolean before implied
    return found
