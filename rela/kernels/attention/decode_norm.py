"""Decoding with the norm over the merged heads: one launch adds up the parts of the keys and normalises their sum.

Apart, these are two launches with the context between them. A step of a generation has so little to compute that each
launch counts. The sum stays in float32, where the context is rounded to the type of the queries.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.decode import decode, planned_parts
from rela.kernels.attention.functional import flat
from rela.kernels.attention.merged_norm import Norm, forward_of, shape_of
from rela.kernels.attention.problem import Problem, ceil_div, layout_of, memo_of, power_of_2
from rela.kernels.early_launch import early, wait_for_results
from rela.kernels.launch import Launch
from rela.kernels.layers.rms_norm import check_widths, contiguous
from rela.kernels.registration import operator

MOST_NUMBERS = 16384  # that a program holds of the parts of its row, 32 for each thread
MOST_TURNS = 4  # of loading them: a row has one program, where a sum without a norm has one for each 64 columns
NUMBERS_OF_A_WARP = 1024


def decode_with_norm(problem: Problem, norm: Norm, merged: bool) -> Tensor:
    """The normalised context of a few queries, [B, T, H·D] if `merged`, else [B, T, H, D]; it has no gradient."""
    key = "decode with norm", merged, layout_of(norm.gain), layout_of(norm.gate)
    run = problem.memo.get(key)
    if run is None:
        run = problem.memo[key] = planned(problem, norm, merged)
    return run(problem, norm)


def planned(problem: Problem, norm: Norm, merged: bool) -> Callable[[Problem, Norm], Tensor]:
    """A function of this problem and norm, and of all that differ from them in their numbers alone."""
    q = problem.q
    B, H, T, D = q.shape
    width = H * D
    check_widths(torch.empty(width, device="meta"), norm.gain, norm.gate)
    parts = planned_parts(problem)
    columns = power_of_2(width)
    together = min(power_of_2(parts.splits), MOST_NUMBERS // columns)
    if not q.numel() or not together or ceil_div(parts.splits, together) > MOST_TURNS:
        return lambda problem, norm: forward_of(problem, norm, merged)(decode(problem), *norm)
    # the same for all lengths of a cache that are cut alike, of which a step of a generation has a new one
    memo = memo_of("sum and norm", q.shape, q.dtype, q.device, layout_of(norm.gain), layout_of(norm.gate), together)
    start = memo.get("start")
    if start is None:
        start = memo["start"] = Launch(sum_and_norm_kernel, (B * T,), constants(q, width, columns, together))
    shape = shape_of(problem, merged)
    strides = torch.empty(shape, device="meta").stride()
    kind, device, splits, count = q.dtype, q.device, parts.splits, q.numel()

    def run(problem: Problem, norm: Norm) -> Tensor:
        gain, gate, eps = norm
        y = torch.empty_strided(shape, strides, dtype=kind, device=device)
        start(parts.fill(problem), gain.contiguous(), contiguous(gate), y, eps, splits, count)
        return y

    return run


def constants(q: Tensor, width: int, columns: int, together: int) -> dict[str, Any]:
    """The compile-time constants of the kernel for rows of `width` numbers, `together` parts of them at a time."""
    warps = max(1, min(16, together * columns // NUMBERS_OF_A_WARP))
    return {"C": width, "COLUMNS": columns, "ROWS": together, "num_warps": warps, **early(True, q)}


def by_operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norm: Norm,
    *,
    scale: float,
    activation: str,
    causal: bool,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    left: int | None,
) -> Tensor:
    """The normalised context [B, T, H, D] of `relu_attention_decode`'s arguments, for compilers and tracers."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    tensors = q, k, v, flat(threshold), flat(key_lengths), flat(key_starts), norm.gain, norm.gate
    return torch.ops.rela.normalised_decode(*tensors, left, scale, activation, causal, norm.eps)


def normalised_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    gain: Tensor,
    gate: Tensor | None,
    left: int | None,
    scale: float,
    activation: str,
    causal: bool,
    eps: float,
) -> Tensor:
    """The normalised context [B, T, H, D]."""
    dense = None, None, q.shape[2], k.shape[2], None
    options: tuple[Any, ...] = scale, activation, causal, 0.0, key_starts, left, None
    problem = Problem.of_operator(q, k, v, threshold, key_lengths, None, *dense, *options)
    return decode_with_norm(problem, Norm(gain, gate, eps), merged=False)


def _empty_context(q: Tensor, *_options: Any) -> Tensor:
    B, H, T, D = q.shape
    return torch.empty(B, T, H, D, dtype=q.dtype, device=q.device)


operator(normalised_decode, _empty_context)


@triton.jit(do_not_specialize=["splits", "n"])
def sum_and_norm_kernel(
    parts,
    gain,
    gate,
    y,
    eps,
    splits,
    n,
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """y = the norm of parts.sum(0), rounded once; a program has one row of merged heads, in ROWS parts at a time."""
    i_n = tl.program_id(0)
    o_c = tl.arange(0, COLUMNS)
    o_row = tl.arange(0, ROWS)
    m_c = o_c < C
    # parameters are older than the launch in front, so they are there before its results
    b_gain = tl.load(gain + o_c, mask=m_c, other=0.0).to(tl.float32)
    if gate is not None:
        b_gate = tl.load(gate + o_c, mask=m_c, other=0.0).to(tl.float32)
    b_parts = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    wait_for_results(EARLY)
    for i in range(0, splits, ROWS):
        p_parts = parts + (i + o_row[:, None]) * tl.cast(n, tl.int64) + i_n * C + o_c[None, :]
        b_parts += tl.load(p_parts, mask=(i + o_row < splits)[:, None] & m_c[None, :], other=0.0)
    # [COLUMNS]
    b_z = tl.sum(b_parts, axis=0)
    b_y = b_z / tl.sqrt(tl.sum(b_z * b_z, axis=0) / C + eps) * b_gain
    if gate is not None:
        b_y *= tl.sigmoid(b_gate * b_z)
    tl.store(y + i_n.to(tl.int64) * C + o_c, b_y.to(y.dtype.element_ty), mask=m_c)
