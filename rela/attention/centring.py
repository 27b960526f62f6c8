"""Keys without their sentence's mean: how attention by rectifiers learns to look as quickly as softmax does.

What all keys of a sentence have in common adds one number to all scores of a query. Softmax ignores it; a rectifier is
switched by it, all keys on or all off, and at the start of training it is larger than the differences between the keys.
Training may subtract it at first and less and less of it later (`train.centring`); the finished model has plain keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rela.device import triton_serves
from rela.packing import Packing


def centre_keys(k: Tensor, keys: Packing, share: Tensor) -> Tensor:
    """Packed keys [M, C] minus `share` (a tensor of one number) times the mean key of their sentence; filler as it is.

    Softmax attention is the same for every share.
    """
    if triton_serves(k):
        from rela.kernels.layers import centring as kernel

        return kernel.centre_keys(k, keys.cu_seqlens, share)
    return centre_reference(k, keys, share)


def centre_reference(k: Tensor, keys: Packing, share: Tensor) -> Tensor:
    """The same in plain PyTorch, sums in at least float32."""
    sentence = keys.sentence_of(k.size(0))  # filler is one more sentence
    exact = k.to(torch.promote_types(k.dtype, torch.float32))
    sums = exact.new_zeros(keys.sentences + 1, k.size(1)).index_add(0, sentence, exact)
    lengths = keys.cu_seqlens.diff(append=keys.cu_seqlens.new_full((1,), k.size(0)))
    means = sums / lengths.clamp(min=1)[:, None]
    filler = (sentence == keys.sentences)[:, None]
    return (exact - share * means[sentence].masked_fill(filler, 0.0)).to(k.dtype)
