"""An exchanged Hugging Face model, saved and loaded by `save_pretrained` and `from_pretrained`.

The configuration says what was exchanged, in `rela`, and names our attention, in `attn_implementation`. Both are
written to config.json. Where `transformers` does not know us it refuses that name; where it does, a model built from
such a configuration gets its attentions exchanged before its weights are loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from torch import nn

from rela.attention import hugging_face
from rela.attention.hugging_face import ATTACHED, IMPLEMENTATION, attentions, configurations, is_hugging_face

OPTIONS = ("kind", "threshold", "target_sparsity", "backend")
WRITTEN = ("rela", "attn_implementation")
"""What is written to a configuration."""


def register_transformers() -> None:
    """Make the attentions of this library known to `transformers`, so that `from_pretrained` loads exchanged models."""
    from transformers import AttentionInterface, PreTrainedModel
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, hugging_face.forward)
    AttentionMaskInterface.register(IMPLEMENTATION, hugging_face.mask_of)
    original = PreTrainedModel.post_init
    if getattr(original, "exchanges_attention", False):
        return

    @functools.wraps(original)
    def post_init(model: Any) -> None:
        original(model)
        exchange_as_configured(model)

    post_init.exchanges_attention = True  # type: ignore[attr-defined]
    PreTrainedModel.post_init = post_init


def exchange_as_configured(model: Any) -> None:
    """Exchange the attentions of a model just built, where its configuration says so and it is not done yet."""
    from rela.attention.replace import replace_attention

    options = getattr(model.config, "rela", None)
    if options is None or model.config._attn_implementation != IMPLEMENTATION:
        return
    model.config.attn_implementation = IMPLEMENTATION  # a configuration does not keep what it was read from
    looking = any(not hasattr(attention, ATTACHED) for attention in attentions(model).values())
    if looking or any(isinstance(part, nn.MultiheadAttention) for part in model.modules()):
        replace_attention(model, **{name: options[name] for name in OPTIONS})


def configure(model: nn.Module, options: dict[str, Any], left: Collection[str]) -> Callable[[], None]:
    """Write to the configurations inside `model` what was exchanged; the answer puts back what they said before.

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
