"""Rectified linear attention (ReLA, arXiv 2104.07012) for PyTorch, and the translation laboratory around it."""

from rela.attention.cache import KVCache
from rela.attention.dispatch import attend, attention_weights
from rela.attention.kinds import NORMS, PRESETS, Kind
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import GatedRMSNorm, LayerNorm, RMSNorm
from rela.attention.packed import attend_packed
from rela.attention.replace import replace_attention
from rela.attention.sparsity import collect_sparsity_penalty, null_rate, sparsity_penalty, sparsity_rate

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
    "null_rate",
    "replace_attention",
    "sparsity_penalty",
    "sparsity_rate",
]
