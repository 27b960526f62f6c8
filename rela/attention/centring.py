"""Keys without their sentence's mean: how attention by rectifiers learns to look as quickly as softmax does.

What all keys of a sentence have in common adds one number to all scores of a query. Softmax does not see it; a rectifier
is switched by it, all keys on or all off, and at the start it is larger than the differences between the keys. Training may
take it off at first and give it back little by little (`train.centring`); the finished model has plain keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rela.attention.norms import triton_is_there


def centre_keys(k: Tensor, cu_keys: Tensor, share: Tensor) -> Tensor:
    """Packed keys [M, C] minus `share` (a tensor of one number) times the mean key of their sentence; filler as it is.

    Softmax attention is the same for every share.
    """
    if k.is_cuda and k.dtype in (torch.float32, torch.bfloat16, torch.float16) and triton_is_there():
        from rela.kernels import centring as kernel

        return kernel.centre_keys(k, cu_keys, share)
    return centre_plainly(k, cu_keys, share)


def centre_plainly(k: Tensor, cu_keys: Tensor, share: Tensor) -> Tensor:
    """The same in plain PyTorch, sums in at least float32."""
    token = torch.arange(k.size(0), device=k.device, dtype=cu_keys.dtype)
    sentence = torch.searchsorted(cu_keys[1:].contiguous(), token, right=True)  # [M]; filler is one more sentence
    exact = k.to(torch.promote_types(k.dtype, torch.float32))
    sums = exact.new_zeros(cu_keys.numel(), k.size(1)).index_add(0, sentence, exact)
    lengths = cu_keys.diff(append=cu_keys.new_full((1,), k.size(0)))
    means = sums / lengths.clamp(min=1)[:, None]
    inside = (token < cu_keys[-1])[:, None]
    return (exact - share * means[sentence].masked_fill(~inside, 0.0)).to(k.dtype)
