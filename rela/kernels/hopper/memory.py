"""Descriptors of tensors for the tensor memory accelerator of Hopper GPUs."""

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32, torch.int32: gl.int32}


@cache
def tile_layout(rows: int, columns: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, columns], TYPES[dtype])


def descriptor(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Tiles of one head of x, [B, H, N, D]; what lies beyond N or D reads as zeros and is not written."""
    # an axis of one element may have any stride, the accelerator wants a proper one
    proper = -(-x.shape[3] // 8) * 8
    strides = [s if n > 1 else proper for s, n in zip(x.stride()[:-1], x.shape[:-1], strict=True)]
    # made without its constructor, whose checks dispatch.has_descriptor has made: a launch has up to seven of them
    made = object.__new__(TensorDescriptor)
    made.base, made.shape, made.strides, made.padding = x, list(x.shape), [*strides, 1], "zero"
    made.block_shape, made.layout = [1, 1, rows, columns], tile_layout(rows, columns, x.dtype)
    return made
