"""Hugging Face models with our attention and with their own: a training step, a padded one, and generation.

Both models have the same random weights. The original runs with `attn_implementation="sdpa"`, ours after
`rela.replace_attention(model, "rela-g")`. benchmarks/front_door.py runs these cases.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import rela
from benchmarks.clocks import Contender

OURS, THEIRS = "rela", "SDPA"
VOCABULARY = 8192

# Model class, configuration in full and changes for a rehearsal, batch and length in full and tiny.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": (
        "LlamaForCausalLM",
        {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
         "num_key_value_heads": 8, "max_position_embeddings": 4096},
        {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2},
    ),
    "bert": (
        "BertForMaskedLM",
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
         "max_position_embeddings": 512},
        {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
    ),
    "vit": (
        "ViTForImageClassification",
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
         "image_size": 224, "patch_size": 16},
        {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
         "image_size": 16, "patch_size": 8},
    ),
    "marian": (
        "MarianMTModel",
        {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
         "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "decoder_start_token_id": 0,
         "pad_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": None, "max_position_embeddings": 1024},
        {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "decoder_start_token_id": 0},
        {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4},
    ),
}  # fmt: skip
# What PyTorch's compiler is given: it takes a layer at a time, and of these models two stand for all.
SHALLOW: dict[str, dict[str, Any]] = {
    "bert": {"num_hidden_layers": 2},
    "vit": {"num_hidden_layers": 2},
    "marian": {"encoder_layers": 2, "decoder_layers": 2},
    "t5": {"num_layers": 2},
}
# Batch and length of a step; the encoders' lengths are those they are used with.
SHAPES = {"llama": (4, 2048), "bert": (32, 512), "vit": (64, 197), "marian": (64, 128), "t5": (32, 512)}
GENERATED = {"llama": (4, 2000, 64), "marian": (64, 64, 32), "t5": (32, 256, 32)}
TURNS = 15


def pair_of(name: str, device: torch.device, dtype: torch.dtype, tiny: bool, compiled: bool) -> dict[str, Any]:
    """The model with our attention and the same model with SDPA."""
    import transformers

    class_name, config, small = MODELS[name]
    changes: dict[str, Any] = {**config, **(SHALLOW.get(name, {}) if compiled else {}), **(small if tiny else {})}
    changes["attn_implementation"] = "sdpa"
    if name != "vit":
        changes["vocab_size"] = 64 if tiny else VOCABULARY
    cls = getattr(transformers, class_name)
    torch.manual_seed(0)
    with device:
        theirs = cls(cls.config_class(**changes)).to(dtype)
    ours = copy.deepcopy(theirs)
    rela.replace_attention(ours, "rela-g")
    return {OURS: ours, THEIRS: theirs}


def inputs_of(name: str, config: Any, device: torch.device, dtype: torch.dtype, shape: tuple[int, int], padded: bool):
    """A batch for the loss: tokens and labels, or pictures; padding on the left for a decoder, else on the right."""
    batch, length = shape
    if name == "vit":
        size = config.image_size
        return {
            "pixel_values": torch.randn(batch, 3, size, size, device=device, dtype=dtype),
            "labels": torch.zeros(batch, dtype=torch.long, device=device),
        }
    tokens = torch.randint(2, config.vocab_size, (batch, length), device=device)
    given = {"input_ids": tokens, "labels": tokens.clone()}
    if padded:
        lengths = torch.linspace(length // 2, length, batch, device=device).long()[:, None]
        position = torch.arange(length, device=device)
        real = position >= length - lengths if name == "llama" else position < lengths
        given |= {"attention_mask": real.long(), "labels": tokens.masked_fill(~real, -100)}
    return given


def training_step(model: nn.Module, given: Mapping[str, Tensor]) -> Callable[[], object]:
    """Loss and gradients; the gradients of the step before are dropped."""

    def step() -> object:
        model.zero_grad(set_to_none=True)
        loss = model(**given).loss
        loss.backward()
        return loss

    return step


def whole_model(call: Callable[[], object]) -> Contender:
    """A call of some hundred launches, which often waits for the device and varies by a fifth from turn to turn."""
    return Contender(call, launches=240, recordable=False, turns=TURNS)


def steps(
    name: str, device: torch.device, dtype: torch.dtype, tiny: bool, padded: bool, compiled: bool
) -> dict[str, Contender]:
    pair = pair_of(name, device, dtype, tiny, compiled)
    given = inputs_of(name, pair[THEIRS].config, device, dtype, (2, 8) if tiny else SHAPES[name], padded)
    ready = {side: torch.compile(model.train()) if compiled else model.train() for side, model in pair.items()}
    return {side: whole_model(training_step(model, given)) for side, model in ready.items()}


def generations(name: str, device: torch.device, dtype: torch.dtype, tiny: bool, static: bool) -> dict[str, Contender]:
    """Greedy search for as many tokens as are asked for, with the cache that `generate` chooses or a static one."""
    pair = pair_of(name, device, dtype, tiny, static)
    batch, prompt, new = (2, 6, 3) if tiny else GENERATED[name]
    tokens = torch.randint(2, pair[THEIRS].config.vocab_size, (batch, prompt), device=device)
    options: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": 1}
    options |= {"attention_mask": torch.ones_like(tokens), "pad_token_id": 0}
    if static:
        options["cache_implementation"] = "static"

    def call(model: Any) -> object:
        return model.generate(tokens, **options)

    return {side: whole_model(partial(call, model.eval())) for side, model in pair.items()}


def model_cases(
    name: str, device: torch.device, dtype: torch.dtype, tiny: bool
) -> Iterator[tuple[str, Callable[[], dict[str, Contender]]]]:
    """The name and the maker of each case of a model; what compiles comes last."""
    where = (name, device, dtype, tiny)
    padded = (False,) if name == "vit" else (False, True)
    for is_padded in padded:
        yield ("padded " if is_padded else "") + "training step", partial(steps, *where, is_padded, False)
    if name in GENERATED:
        yield "generate", partial(generations, *where, False)
    if tiny:
        return  # a compiler is no matter of a rehearsal
    depth = ", 2 layers" if name in SHALLOW else ""
    for is_padded in padded:
        case = ("padded " if is_padded else "") + "training step, compiled" + depth
        yield case, partial(steps, *where, is_padded, True)
    if name in GENERATED:
        yield "generate, static cache" + depth, partial(generations, *where, True)
