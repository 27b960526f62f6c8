"""What the scripts under benchmarks/ share: the facts a row carries, and Hugging Face Marian of the same sizes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import torch


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


def marian(vocabulary: int, width: int, layers: int, **settings: Any) -> Any:
    """A Hugging Face Marian with random weights and the sizes of our own Transformer; `settings` are its config's."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(1)
    sizes: dict[str, Any] = {"vocab_size": vocabulary, "d_model": width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": width // 64 or 1, f"{side}_ffn_dim": 4 * width}
    plan: dict[str, Any] = {"activation_function": "relu", "scale_embedding": True, "attn_implementation": "sdpa"}
    return MarianMTModel(MarianConfig(**sizes, **plan, **settings))
