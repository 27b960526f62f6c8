"""Attention with exchangeable weights and output norms; torch alone, useful without the rest of the package.

One legend for all files: B batch, H query heads, Hk key/value heads, T queries, S keys, D head size,
C model size, N and M packed query and key tokens.
"""

from rela.attention.cache import KVCache
from rela.attention.dispatch import attend, attention_weights
from rela.attention.kinds import NORMS, PRESETS, Kind
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import GatedRMSNorm, LayerNorm, RMSNorm
from rela.attention.packed import attend_packed
from rela.attention.replace import replace_attention
from rela.attention.sparsity import collect_sparsity_penalty, null_rate, sparsity_penalty, sparsity_rate

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
