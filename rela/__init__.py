"""Rectified linear attention (ReLA, arXiv 2104.07012) for PyTorch, and the translation toolkit around it.

`import rela` is immediate: PyTorch and the attention library are imported when one of the names below is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rela.attention import (
        NORMS,
        PRESETS,
        GatedRMSNorm,
        Kind,
        KVCache,
        LayerNorm,
        MultiheadAttention,
        RMSNorm,
        RowStatistics,
        attend,
        attend_packed,
        attend_with_statistics,
        attention_weights,
        collect_sparsity_penalty,
        null_rate,
        replace_attention,
        sparsity_penalty,
        sparsity_rate,
    )
    from rela.decoding.translate import Translator

__version__ = "0.1.0"

__all__ = [
    "NORMS",
    "PRESETS",
    "GatedRMSNorm",
    "KVCache",
    "Kind",
    "LayerNorm",
    "MultiheadAttention",
    "RMSNorm",
    "RowStatistics",
    "attend",
    "attend_packed",
    "attend_with_statistics",
    "attention_weights",
    "collect_sparsity_penalty",
    "load",
    "null_rate",
    "register_transformers",
    "replace_attention",
    "sparsity_penalty",
    "sparsity_rate",
]


def load(path: str | Path | Sequence[str | Path], device: str = "auto") -> Translator:
    """A trained translation model from its folder, or an ensemble of several folders.

    Needs the toolkit (`pip install 'rela-attention[mt]'`).
    """
    from rela.errors import with_extra

    try:
        from rela.decoding.translate import Translator

        if isinstance(path, (str, Path)):
            return Translator.load(path, device)
        return Translator.ensemble([Translator.load(folder, device) for folder in path])
    except ImportError as error:
        raise ImportError(with_extra(error), name=error.name) from None


def register_transformers() -> None:
    """Make our attentions and translation models known to `transformers`, so that its Auto classes load them.

    `import rela.hugging_face.auto` does the same.
    """
    from rela.hugging_face.registration import register

    register()


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would take any name for a public one

    def __getattr__(name: str) -> object:
        """A public name of the library, imported when it is first used, or the package `rela.attention`."""
        if name != "attention" and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import rela.attention

        value = rela.attention if name == "attention" else getattr(rela.attention, name)
        return globals().setdefault(name, value)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "attention"})
