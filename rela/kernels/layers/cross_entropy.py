"""The label-smoothed loss of a chunk of logits; the gradient overwrites them: each is read once and written once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import power_of_2
from rela.kernels.launch import on_device

# Words a program holds at once: a row of up to so many is read from memory once.
WORDS = 32768


def smoothed_loss(
    logits: Tensor, target: Tensor, smoothing: float, pad: int, wanted: bool, words: int = WORDS
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(loss, nll, gradient of the loss in the logits or None) of logits [N, V] and targets [N], summed in float32.

    Targets equal to `pad` do not count. The gradient is computed if it is `wanted`, and overwrites the logits.
    """
    N, V = logits.shape
    BV = min(power_of_2(V), words)
    sums = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    if N:
        with on_device(logits):
            loss_kernel[(N,)](
                logits,
                target.contiguous(),
                sums,
                smoothing,
                pad,
                N,
                V,
                logits.stride(0),
                WANTED=wanted,
                ONE=V <= BV,
                BV=BV,
                num_warps=max(4, min(BV // 1024, 16)),
            )
    nll, uniform = sums.sum(1)
    return (1.0 - smoothing) * nll + smoothing * uniform, nll, logits if wanted else None


@triton.jit(do_not_specialize=["pad", "N"])
def loss_kernel(
    logits, target, sums, smoothing, pad, N, V, stride_logits, WANTED: tl.constexpr, ONE: tl.constexpr, BV: tl.constexpr
):
    """nll and the mean of −log p over all words of each row, into sums [2, N]."""
    i_n = tl.program_id(0).to(tl.int64)
    logits += i_n * stride_logits
    word = tl.load(target + i_n)
    counts = word != pad
    # read before the slope takes its place: every sum over the row below makes all threads wait
    likely = tl.load(logits + word).to(tl.float32)
    o_v = tl.arange(0, BV)
    if ONE:
        # [BV]
        b_x = tl.load(logits + o_v, mask=o_v < V, other=float("-inf")).to(tl.float32)
        top = tl.max(b_x)
        b_e = tl.exp(b_x - top)
        total = tl.sum(b_e)
        mean = tl.sum(tl.where(o_v < V, b_x, 0.0)) / V
    else:
        top = float("-inf")
        total = 0.0
        mean = 0.0
        for i_v in range(0, V, BV):
            b_x = tl.load(logits + i_v + o_v, mask=i_v + o_v < V, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(b_x))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(b_x - higher))
            mean += tl.sum(tl.where(i_v + o_v < V, b_x, 0.0)) / V
            top = higher
    normaliser = top + tl.log(total)
    tl.store(sums + i_n, tl.where(counts, normaliser - likely, 0.0))
    tl.store(sums + N + i_n, tl.where(counts, normaliser - mean, 0.0))
    if WANTED:
        # d loss / d logits = softmax − (1 − ε) at the word − ε / V everywhere
        if ONE:
            b_slope = b_e / total - tl.where(o_v == word, 1.0 - smoothing, 0.0) - smoothing / V
            b_slope = tl.where(counts, b_slope, 0.0)
            tl.store(logits + o_v, b_slope.to(logits.dtype.element_ty), mask=o_v < V)
        else:
            for i_v in range(0, V, BV):
                b_x = tl.load(logits + i_v + o_v, mask=i_v + o_v < V, other=float("-inf")).to(tl.float32)
                b_slope = tl.exp(b_x - normaliser) - tl.where(i_v + o_v == word, 1.0 - smoothing, 0.0) - smoothing / V
                b_slope = tl.where(counts, b_slope, 0.0)
                tl.store(logits + i_v + o_v, b_slope.to(logits.dtype.element_ty), mask=i_v + o_v < V)
