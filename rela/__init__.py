"""Rectified linear attention (ReLA, arXiv 2104.07012) for PyTorch, and the translation laboratory around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rela.attention.cache import KVCache
from rela.attention.dispatch import attend, attention_weights
from rela.attention.kinds import NORMS, PRESETS, Kind
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import GatedRMSNorm, LayerNorm, RMSNorm
from rela.attention.packed import attend_packed
from rela.attention.replace import replace_attention
from rela.attention.sparsity import collect_sparsity_penalty, null_rate, sparsity_penalty, sparsity_rate

if TYPE_CHECKING:
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
    "attend",
    "attend_packed",
    "attention_weights",
    "collect_sparsity_penalty",
    "load",
    "null_rate",
    "replace_attention",
    "sparsity_penalty",
    "sparsity_rate",
]


def load(path: str | Path, device: str = "auto") -> Translator:
    """A trained translation model from its folder; needs the toolkit (`pip install 'rela-attention[mt]'`)."""
    from rela.decoding.translate import Translator

    return Translator.load(path, device)
