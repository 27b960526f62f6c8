"""An exchanged Hugging Face model, saved and loaded by `save_pretrained` and `from_pretrained`.

The configuration says what was exchanged, in `rela`, and names our attention, in `attn_implementation`. Both are
written to config.json. Where that name is not registered with `transformers`, it refuses it; where it is, a model built
from such a configuration gets its attentions exchanged before its weights are loaded.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    not_exchanged,
)
from rela.attention.kinds import name_of
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import RMSNorm

OPTIONS = ("kind", "threshold", "target_sparsity", "backend")
WHICH = ("names", "others")
"""Which attentions of a model have these options, if not all; and the same of those that have other options."""
WRITTEN = ("rela", "attn_implementation")
"""What is written to a configuration."""


def register_transformers() -> None:
    """Make the attentions of this library known to `transformers`, so that `from_pretrained` loads exchanged models."""
    from transformers import AttentionInterface, PreTrainedModel
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, hugging_face.forward)
    AttentionMaskInterface.register(IMPLEMENTATION, hugging_face.mask_of)
    with suppress(ImportError, AttributeError):
        from transformers.utils import output_capturing

        hugging_face.COLLECTOR = output_capturing._active_collector
    original_init = PreTrainedModel.__init__
    original, original_save = PreTrainedModel.post_init, PreTrainedModel.save_pretrained
    if getattr(original, "exchanges_attention", False):
        return

    @functools.wraps(original_init)
    def init(model: Any, config: Any, *arguments: Any, **options: Any) -> None:
        if getattr(config, "rela", None) is not None:
            keep_chosen_classes(type(model))
        original_init(model, config, *arguments, **options)

    @functools.wraps(original)
    def post_init(model: Any) -> None:
        original(model)
        exchange_as_configured(model)

    @functools.wraps(original_save)
    def save_pretrained(model: Any, *arguments: Any, **options: Any) -> Any:
        with named_as_exchanged(model):
            return original_save(model, *arguments, **options)

    post_init.exchanges_attention = True  # type: ignore[attr-defined]
    PreTrainedModel.__init__ = init
    PreTrainedModel.post_init, PreTrainedModel.save_pretrained = post_init, save_pretrained
    PreTrainedModel._initialize_weights = initialising_ours(PreTrainedModel._initialize_weights)
    with suppress(ImportError, AttributeError):
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager as Manager

        Manager.switch_to_cb_friendly_attn = refusing_ours(Manager.switch_to_cb_friendly_attn)
    with suppress(ImportError, AttributeError):
        from transformers.models.whisper.generation_whisper import WhisperGenerationMixin as Whisper

        Whisper.generate = refusing_token_timestamps(Whisper.generate)


def refusing_ours(original: Callable[..., None]) -> Callable[..., None]:
    """Continuous batching's choice of an attention, which must be neither softmax nor ours for an exchanged model.

    Where FlashAttention is installed, `transformers` chooses that for every model that could use it, and for the models
    inside it. Elsewhere it asks about the outermost model alone; ours, inside, would not look at the paged cache.
    """

    @functools.wraps(original)
    def switch(manager: Any, model: Any, *arguments: Any, **options: Any) -> None:
        if is_exchanged(model):
            raise ValueError(
                f"{type(model).__name__} was given to rela.replace_attention, and continuous batching would compute "
                "another attention; wanted generate(), or undo() of the exchange first"
            )
        original(manager, model, *arguments, **options)

    return switch


def refusing_token_timestamps(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whisper's `generate`, which refuses `return_token_timestamps` for an exchanged model.

    It would choose its own eager attention for them, in this call and all later ones.
    """

    @functools.wraps(original)
    def generate(model: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("return_token_timestamps") and is_exchanged(model):
            raise ValueError(
                f"{type(model).__name__} was given to rela.replace_attention, and return_token_timestamps=True would "
                "compute softmax; wanted generate() without it, or undo() of the exchange first"
            )
        return original(model, *arguments, **options)

    return generate


def keep_chosen_classes(cls: type) -> None:
    """Let a model be built from an exchanged configuration where it looks up a class by the implementation's name.

    So does GIT for its text. An exchange leaves such an attention as it is, so it is the model's own eager one, which
    takes the masks that it then gets.
    """
    for name, classes in vars(sys.modules[cls.__module__]).items():
        if name.endswith("ATTENTION_CLASSES") and isinstance(classes, dict) and "eager" in classes:
            classes.setdefault(IMPLEMENTATION, classes["eager"])


def is_exchanged(model: Any) -> bool:
    """Whether our attention is the one chosen for a model or a part of it."""
    return any(config._attn_implementation == IMPLEMENTATION for config in configurations([model]))


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


def keep_values(model: nn.Module) -> None:
    """Tell `transformers` that the norms and thresholds of an exchange have their values.

    Else a model made around this one, as `EncoderDecoderModel` is, would begin them anew. Those on no device have none.
    """
    for part in model.modules():
        if isinstance(part, (Attached, RMSNorm)) and not any(parameter.is_meta for parameter in part.parameters()):
            part._is_hf_initialized = True  # type: ignore[assignment]


def exchange_as_configured(model: Any) -> None:
    """Exchange the attentions of a model just built, where its configuration says so and it is not done yet."""
    from rela.attention.replace import exchange

    saved = getattr(model.config, "rela", None)
    if saved is None:
        return
    if model.config._attn_implementation != IMPLEMENTATION:
        # Built for another attention: ours, chosen later, would find nothing to compute, and must not be taken for what
        # was left of a model that was exchanged in part.
        forget(model.config)
        return
    model.config.attn_implementation = IMPLEMENTATION  # a configuration does not keep what it was read from
    looking: dict[str, Any] = {**attentions(model)}
    waiting = {
        name
        for name, attention in looking.items()
        if not hasattr(attention, ATTACHED) and attention.config._attn_implementation == IMPLEMENTATION
    }
    waiting |= {name for name, part in model.named_modules() if isinstance(part, nn.MultiheadAttention)}
    for part in (saved, *saved.get("others", ())):
        only = part.get("names")
        if only is not None:  # as the model that was saved knows them, which may be one around this one
            only = {*only, *(name.removeprefix(f"{model.base_model_prefix}.") for name in only)}
        if waiting if only is None else waiting & only:
            exchange(model, only=only, **{name: part[name] for name in OPTIONS})
    if saved.get("names") is not None:
        leave_others(model)
    # What the last exchange wrote is not all, and the model around this one has to know: also what masks are needed by
    # attentions that were left in another part of it, which may be built later.
    written = model.config.rela
    masks = min(part.get("masks", "boolean") for part in (saved, written))
    model.config.rela |= {**{name: saved[name] for name in (*OPTIONS, *WHICH) if name in saved}, "masks": masks}


def leave_others(model: nn.Module) -> None:
    """Give the parts of a model of which nothing was exchanged, and that share no configuration, their own attention.

    `transformers` gives the implementation that a configuration names to every configuration inside it.
    """
    parts: list[Any] = [part for part in model.modules() if is_hugging_face(part)]
    for part in parts:
        inside: list[Any] = [part, *attentions(part).values()]
        for config in [one.config for one in inside if getattr(one, "config", None) is not None]:
            if config._attn_implementation == IMPLEMENTATION and getattr(config, "rela", None) is None:
                config._attn_implementation_internal = part.get_correct_attn_implementation(None)


def forget(config: Any) -> dict[str, Any]:
    """Remove from a configuration what an exchange wrote to it; the answer is what that was."""
    return {name: vars(config).pop(name) for name in WRITTEN if name in vars(config)}


@contextmanager
def named_as_exchanged(model: Any) -> Iterator[None]:
    """Within this, the configuration of a model says what its attentions compute."""
    name_exchanged(model)
    ours = any(isinstance(part, (Attached, MultiheadAttention)) for part in model.modules())
    # Another model was exchanged, and this one shares its configuration; or a part has been given another attention.
    strange = [
        config
        for config in configurations([model])
        if getattr(config, "rela", None) is not None
        and (not ours or (config is not model.config and config._attn_implementation != IMPLEMENTATION))
    ]
    hidden = [(config, forget(config)) for config in strange]
    try:
        yield
    finally:
        for config, written in hidden:
            vars(config).update(written)


def name_exchanged(model: Any) -> None:
    """Write to the configuration of a model what its attentions compute, and which where they are not all alike."""
    looking: dict[str, Any] = {**attentions(model)}
    exchanged: dict[str, Any] = {
        name: getattr(attention, ATTACHED).itself()
        for name, attention in looking.items()
        if hasattr(attention, ATTACHED) and attention.config._attn_implementation == IMPLEMENTATION
    }
    for config in configurations([model]):
        if getattr(config, "rela", None) is not None and config._attn_implementation != IMPLEMENTATION:
            vars(config).pop("attn_implementation", None)  # another was chosen since
    if not exchanged:
        return
    known = [getattr(config, "rela", None) for config in (model.config, *(looking[name].config for name in exchanged))]
    masks = next((written["masks"] for written in known if written is not None), "boolean")
    if not_exchanged(model, looking):
        masks = "additive"  # which a part does not know that was exchanged, or is built when it is loaded, by itself
    whole = exchanged.keys() == looking.keys() and not any(
        isinstance(part, nn.MultiheadAttention) for part in model.modules()
    )
    exchanged |= {name: part for name, part in model.named_modules() if isinstance(part, MultiheadAttention)}
    first, *others = group_by_options(exchanged)
    if whole and not others:
        del first["names"]
    if not isinstance(getattr(model.config, "rela", None), dict):
        model.config.rela = {}
    model.config.rela.clear()  # the same dictionary: an exchange knows what it wrote by it
    model.config.rela.update({**first, "masks": masks, **({"others": others} if others else {})})
    model.config.attn_implementation = IMPLEMENTATION


def group_by_options(exchanged: Mapping[str, Attached | MultiheadAttention]) -> list[dict[str, Any]]:
    """The options of exchanged attentions, and the names of those that have them."""
    groups: list[dict[str, Any]] = []
    for name, part in exchanged.items():
        learned = isinstance(part.threshold, nn.Parameter)
        values = name_of(part.kind), "learned" if learned else part.threshold, part.target_sparsity, part.backend
        options = dict(zip(OPTIONS, values, strict=True))
        group = next((group for group in groups if options.items() <= group.items()), None)
        if group is None:
            groups.append({**options, "names": [name]})
        else:
            group["names"].append(name)
    return groups


def configure(
    model: nn.Module, options: dict[str, Any], left: Collection[str]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Write to the configurations inside `model` what was exchanged.

    The first function returned undoes it, the second refuses where a later exchange has written to one of them.

    `left` are the names of attentions that were not exchanged.
    """
    parts: list[Any] = [part for part in model.modules() if is_hugging_face(part)]
    # Some attentions hold a copy of the configuration, as T5's do.
    configs = configurations((*parts, *attentions(model).values()))
    before = [{name: vars(config).get(name) for name in WRITTEN} for config in configs]
    masks = masks_of(parts, [model.get_submodule(name) for name in left])
    for config in configs:
        config.rela = {**options, "masks": masks.get(id(config), "boolean")}
        config.attn_implementation = IMPLEMENTATION

    written = [config.rela for config in configs]

    def check_last() -> None:
        if any(vars(config).get("rela", mine) is not mine for config, mine in zip(configs, written, strict=True)):
            raise ValueError(
                "another part of this model was exchanged later, and shares its configuration; wanted that exchange to "
                "be undone first, and each once"
            )

    def put_back() -> None:
        for config, values in zip(configs, before, strict=True):
            for name, value in values.items():
                vars(config).pop(name, None)
                if value is not None:
                    setattr(config, name, value)

    return put_back, check_last


def masks_of(parts: Collection[Any], left: Collection[nn.Module]) -> dict[int, str]:
    """The masks that a model needs, by the id of its configuration.

    "implied": a causal mask may be left out where `is_causal` of an attention says as much. "boolean": it may not, for
    models never made for PyTorch's own attention do not tell, and some drop queries where that attention is not the
    one that was chosen. "additive": attentions that were left add it to scores.
    """
    found: dict[int, str] = {}
    for part in parts:
        inside = {id(module) for module in part.modules()}
        added = any(id(module) in inside for module in left) or others_add_masks(part)
        needed = "additive" if added else "boolean"
        if needed == "boolean" and getattr(part, "_supports_sdpa", False) and not makes_exceptions(part):
            needed = "implied"
        for config in configurations([part]):
            found[id(config)] = min(needed, found.get(id(config), needed))  # additive before boolean before implied
    # Gemma within PaliGemma says that it is not causal, and is given causal masks where no prefix is told.
    looking: list[Any] = [attention for part in parts for attention in attentions(part).values()]
    telling = {id(attention.config) for attention in looking if getattr(attention, "is_causal", False)}
    for config in (attention.config for attention in looking):
        if id(config) not in telling and found.get(id(config)) == "implied":
            found[id(config)] = "boolean"
    return found


def others_add_masks(part: Any) -> bool:
    """Whether the other half of an encoder-decoder may have attentions that add the masks of this part to their scores.

    They compute softmax themselves, without `ALL_ATTENTION_FUNCTIONS`, as the encoder of BigBird-Pegasus does: the two
    halves share a configuration, so the masks that an exchange of the decoder alone asks for reach the encoder, too.
    """
    if not getattr(part.config, "is_encoder_decoder", False):
        return False
    known = vars(sys.modules[type(part).__module__]).values()
    names = [names_in(cls) for cls in known if inspect.isclass(cls) and "Attention" in cls.__name__]
    return any("softmax" in found and "ALL_ATTENTION_FUNCTIONS" not in found for found in names)


def names_in(cls: type) -> set[str]:
    """The names that the methods of a class look up."""
    return {
        name for function in vars(cls).values() if inspect.isfunction(function) for name in function.__code__.co_names
    }


def makes_exceptions(model: Any) -> bool:
    """Whether a method of a model, not of all of them, asks if PyTorch's attention was chosen.

    Gemma 4 does: it computes only the last queries in its last layers, but not for an attention whose mask may be left
    out. Ours has another name.
    """
    own = [cls for cls in type(model).__mro__ if cls.__module__ != "transformers.modeling_utils"]
    codes = [function.__code__ for cls in own for function in vars(cls).values() if inspect.isfunction(function)]
    return any("_attn_implementation" in code.co_names and "sdpa" in code.co_consts for code in codes)
