"""Attention with exchangeable weights and output norms; torch alone, useful without the rest of the package.

One legend for the tensors of the whole package:

    B  batch, or sentences of a packing      C  model size (heads · head size)
    H  query heads                           F  inner size of a feed-forward layer
    Hk key and value heads                   V  vocabulary
    T  queries                               N  packed query (target) rows, or rows of any matrix
    S  keys                                  M  packed key (source) rows
    D  head size                             L  layers
    θ  threshold                             K  beam width; R = B · K rows of a decoding step

In kernels a capital B before a letter is the size of a block of it (BT queries, BS keys, BD head size), `n_t` the
number of such blocks. Prefixes of names: `i_` index, `o_` offsets, `m_` mask, `p_` pointers, `b_` block held in
registers, `s_` block in shared memory.
"""

from rela.attention.cache import KVCache
from rela.attention.dispatch import RowStatistics, attend, attend_with_statistics, attention_weights
from rela.attention.kinds import NORMS, PRESETS, Kind
from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import GatedRMSNorm, LayerNorm, RMSNorm
from rela.attention.packed import attend_packed
from rela.attention.pretrained import register_transformers
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
    "RowStatistics",
    "attend",
    "attend_packed",
    "attend_with_statistics",
    "attention_weights",
    "collect_sparsity_penalty",
    "null_rate",
    "register_transformers",
    "replace_attention",
    "sparsity_penalty",
    "sparsity_rate",
]
