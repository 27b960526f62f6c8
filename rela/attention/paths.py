"""Which code computes a call of `attend`: a pure function of sizes, types and options, to be tested on any machine.

decode     the fused kernel for few queries and many keys, without gradient
fused      the fused kernels of rectifiers, forward and backward
simplex    the fused kernels of sparsemax and entmax, forward and backward
softmax    PyTorch's scaled_dot_product_attention, its empty rows made safe
blocks     rectifiers on a CPU, a block of queries after the other
reference  the equation in plain PyTorch
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rela.attention.kinds import Kind
from rela.device import triton_is_installed

FEWEST_DECODE_KEYS = 256  # below that one program has the keys of a query read before two kernels have been launched


class Call(NamedTuple):
    """What the choice depends on. Sizes may be symbols of a compiler, which are compared with nothing."""

    weights: str
    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16
    heads: int = 8
    key_heads: int = 8
    queries: int = 1
    keys: int = 1
    size: int = 64
    value_size: int = 64
    causal: bool = False
    """Some key is hidden by causality: not where there is one query, which comes last."""
    mask: torch.dtype | None = None
    lengths: bool = False
    starts: bool = False
    left: int | None = None
    right: int | None = None
    gradient: bool = False
    dropout: float = 0.0
    backend: str = "auto"
    has_triton: bool = True

    @property
    def limited(self) -> bool:
        """Whether something else than causality hides keys or changes scores."""
        sides = self.left is not None or self.right is not None
        return self.mask is not None or self.lengths or self.starts or sides


def call_of(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    kind: Kind,
    mask: Tensor | None = None,
    lengths: bool = False,
    starts: bool = False,
    sides: tuple[int | None, int | None] = (None, None),
    causal: bool = False,
    gradient: bool = False,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Call:
    """The call of these tensors and options."""
    return Call(
        kind.weights,
        q.device.type,
        q.dtype,
        q.size(1),
        k.size(1),
        q.size(-2),
        k.size(-2),
        q.size(-1),
        q.size(-1) if v is None else v.size(-1),
        causal,
        None if mask is None else mask.dtype,
        lengths,
        starts,
        *sides,
        gradient,
        dropout,
        backend,
        triton_is_installed(),
    )


def path_of(call: Call) -> str:
    """The name of the path that serves a call; a backend of "triton" that cannot is an error with the reason."""
    reason = why_not_fused(call)
    if call.backend == "triton" and reason is not None:
        raise ValueError(f"backend='triton' cannot serve this call: {reason}")
    if call.backend != "reference" and reason is None:
        if is_simplex(call.weights):
            return "simplex"
        return "fused" if why_not_decoded(call) is not None else "decode"
    if call.backend == "auto" and torch_softmax_serves(call):
        return "softmax"
    if call.backend == "auto" and blocks_serve(call):
        return "blocks"
    return "reference"


def why_not_fused(call: Call) -> str | None:
    """The first reason the fused kernels cannot serve this call, or None if they can."""
    from rela.kernels.attention.activations import ACTIVATIONS, SERVED
    from rela.kernels.limits import LARGEST_HEAD, TYPES

    projected = is_simplex(call.weights)
    if not projected and call.weights not in ACTIVATIONS:
        return f"{call.weights} weights have no fused kernel; wanted {SERVED}"
    if call.device != "cuda":
        return f"the fused kernel runs on CUDA tensors, and q is on {call.device}"
    if not call.has_triton:
        return "Triton is not installed"
    if call.dtype not in TYPES:
        return f"the fused kernel takes float32, bfloat16 and float16, and q is {call.dtype}"
    for name, size in (("q", call.size), ("v", call.value_size)):
        if size > LARGEST_HEAD:
            return f"the fused kernel takes head sizes up to {LARGEST_HEAD}, and {name} has {size}"
    if projected and call.mask not in (None, torch.bool):
        return f"the fused kernel of {call.weights} takes boolean masks, and this one is {call.mask}"
    if call.mask == torch.float64:
        return "the fused kernel adds masks of up to 32 bits, and this one is torch.float64"
    return None


def is_simplex(weights: str) -> bool:
    """Whether the fused kernels of sparsemax and entmax compute these weights."""
    from rela.kernels.attention.activations import alpha_of

    return alpha_of(weights) is not None


def why_not_decoded(call: Call) -> str | None:
    """The first reason the kernel for decoding is not the one to serve a fused call, or None if it is."""
    from rela.kernels.limits import MOST_DECODE_ROWS

    if call.gradient:
        return "decoding has no gradient"
    if call.dropout:
        return "decoding has no dropout"
    if call.mask is not None:
        return "decoding takes key lengths, key starts, a window and causality, and this call has a mask"
    if call.right is not None:
        return "decoding takes a window to the left, and this one has a right side"
    if not isinstance(call.queries, int) or call.queries * call.heads > MOST_DECODE_ROWS * call.key_heads:
        return f"decoding takes up to {MOST_DECODE_ROWS} queries to a key head"
    if isinstance(call.keys, int) and call.keys < max(FEWEST_DECODE_KEYS, 8 * call.queries):
        return f"decoding pays from {FEWEST_DECODE_KEYS} keys on, eight to a query"
    return None


def torch_softmax_serves(call: Call) -> bool:
    """Whether PyTorch's own softmax kernels give our answer.

    On a CPU only where nothing is hidden but by causality with T = S: PyTorch aligns causal sequences at their start.
    For a single query its CPU kernel splits the keys over threads by the batch size, so that a row's last bits would
    depend on the rows beside it; decoding promises that they do not. On a GPU all limits become a mask.
    """
    if call.weights != "softmax" or (isinstance(call.keys, int) and call.keys == 0):
        return False
    if call.device == "cuda":
        return True
    return not call.limited and not (call.causal and call.queries != call.keys) and bool(call.queries != 1)


def blocks_serve(call: Call) -> bool:
    """Whether a call on a CPU is computed in blocks: enough scores, of a rectifier."""
    from rela.attention import blocks

    if call.device != "cpu" or call.weights not in blocks.WEIGHTS:
        return False
    if call.mask not in (None, torch.bool) and call.weights not in blocks.ADDED_MASKS:
        return False
    if not isinstance(call.queries, int) or not isinstance(call.keys, int):
        return False
    wide = call.dtype in (torch.float32, torch.float64)
    return call.queries * call.keys >= (blocks.FEWEST_SCORES if wide else blocks.FEWEST_SCORES_OF_16_BITS)
