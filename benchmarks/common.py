"""What the scripts in benchmarks/ share: facts, ratios, model sizes, and Hugging Face Marian with the same sizes."""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rela.config import ModelConfig


def command() -> str:
    """The command that runs this benchmark in a checkout; never a path of the machine it ran on."""
    words = [word.rpartition("=") for word in sys.argv[1:]]  # "--out=/rows" is an option and its value, "/rows" a value
    bare = [option + equals + (Path(value).name if value.startswith("/") else value) for option, equals, value in words]
    return " ".join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *bare])


def facts(device: torch.device) -> dict[str, Any]:
    """Device, versions and command, as every row holds them."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {
        "device": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": command(),
    }


def median_ratio(speeds: Mapping[str, Sequence[float]], name: str, other: str) -> float | None:
    """The median, over the turns, of one side's speed over another's; None if the other was not measured."""
    if other not in speeds:
        return None
    return statistics.median(mine / theirs for mine, theirs in zip(speeds[name], speeds[other], strict=True))


def rounded(value: float | None, digits: int) -> float | None:
    """The value rounded; None stays None."""
    return None if value is None else round(value, digits)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that `model_config` and `marian` read; the defaults are Transformer base."""
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)


def sizes_of(options: argparse.Namespace) -> dict[str, int]:
    """The options of `add_sizes` as a row holds them."""
    return {"vocabulary": options.vocabulary, "width": options.width, "layers": options.layers}


def model_config(kind: str, options: argparse.Namespace, max_length: int) -> ModelConfig:
    """Our own Transformer of the sizes in `options`, with one attention kind everywhere."""
    return ModelConfig(
        vocabulary_size=options.vocabulary,
        width=options.width,
        heads=options.width // 64 or 1,
        feed_forward=4 * options.width,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        max_length=max_length,
        encoder_attention=kind,
        decoder_attention=kind,
        cross_attention=kind,
    )


def marian(options: argparse.Namespace, **settings: Any) -> Any:
    """A Hugging Face Marian with random weights and the sizes in `options`; `settings` are its config's."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(1)
    width, layers = options.width, options.layers
    sizes: dict[str, Any] = {"vocab_size": options.vocabulary, "d_model": width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": width // 64 or 1, f"{side}_ffn_dim": 4 * width}
    plan: dict[str, Any] = {"activation_function": "relu", "scale_embedding": True, "attn_implementation": "sdpa"}
    return MarianMTModel(MarianConfig(**sizes, **plan, **settings))
