"""The backward pass on Hopper in one pass over the scores, in Gluon: five products, dQ added up in global memory.

A program owns KEYS keys, ROWS of them for each of two warpgroups, and loops over the queries that see them:

    Sᵀ = k qᵀ      dPᵀ = v dOᵀ      dV += wᵀ dO      dK += dSᵀ q      dQ += dS k

The order in which programs add to dQ is not fixed. This module plans and launches; the kernel is in backward_kernel.py,
its warp that loads in backward_loads.py, its warpgroups in backward_products.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div, heads_last
from rela.kernels.attention.tiles import HopperGradientTiles
from rela.kernels.conversion import planned as planned_conversion
from rela.kernels.hopper.backward_kernel import backward_kernel
from rela.kernels.hopper.tables import addressable_bias, dropout_numbers, has_intervals, intervals, mask_words, repeats
from rela.kernels.hopper.wide_backward_kernel import wide_backward_kernel
from rela.kernels.launch import Launch, Tiles, described

ROWS = 64  # keys of a warpgroup, and both sides of its share of a tile of dQ

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""dQ, dK, dV and, where there is a θ, the partial sums of −dθ, [B, H, parts]."""


def planned(problem: Problem, tiles: HopperGradientTiles) -> Callable[[Problem, Tensor, Tensor | None], Gradients]:
    """A function for the gradients of this problem, and of all that differ from it in their numbers alone.

    It takes the problem, dO and zeros in float32 to which dQ is added; those are not converted. None: it makes them.
    """
    (B, H, _, _), (_, Hk, S, _) = problem.q.shape, problem.k.shape
    keys, kind, device = problem.k.shape, problem.q.dtype, problem.q.device
    parts = 0 if problem.threshold is None else theta_parts(problem, tiles)
    grid = (ceil_div(S, keys_of_program(tiles)) * Hk * B,)
    start = Launch(kernel_of(tiles), grid, constants(problem, tiles), tiled(problem, tiles))
    fixed, converted, queries = numbers_of(problem), planned_conversion(problem.q.shape, kind, device), problem.q.shape
    plain = not has_intervals(problem) and problem.mask is None and problem.seed is None

    def run(problem: Problem, d_out: Tensor, dq_sums: Tensor | None) -> Gradients:
        dq = heads_last(queries, torch.float32, device).zero_() if dq_sums is None else dq_sums
        dk, dv = heads_last(keys, kind, device), heads_last(keys, kind, device)
        d_theta = torch.empty(B, H, parts, dtype=torch.float32, device=device) if parts else None
        tables: tuple[Any, ...] = None, None, None, None
        if not plain:
            tables = intervals(problem, of_keys=True), dropout_numbers(problem), mask_words(problem, of_keys=True)
            tables = *tables, addressable_bias(problem)
        start(*tensors(problem, d_out, dq, dk, dv, dq if d_theta is None else d_theta, *tables), *fixed)
        return converted(dq) if dq_sums is None else dq, dk, dv, d_theta

    return run


def kernel_of(tiles: HopperGradientTiles) -> Any:
    """The kernel for heads of these tiles."""
    return backward_kernel if tiles.parts == 1 else wide_backward_kernel


def keys_of_program(tiles: HopperGradientTiles) -> int:
    """Those of two warpgroups; of one if a head consists of parts."""
    return 2 * ROWS if tiles.parts == 1 else ROWS


def theta_parts(problem: Problem, tiles: HopperGradientTiles) -> int:
    """How many partial sums of −dθ there are for each head: one for the keys of each warpgroup."""
    keys = keys_of_program(tiles)
    return ceil_div(problem.k.shape[2], keys) * (keys // ROWS)


def launch(
    problem: Problem,
    d_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    d_theta: Tensor,
    tiles: HopperGradientTiles,
    seen: Tensor | None = None,
    numbers: tuple[Tensor, Tensor] | None = None,
    words: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and compile-time constants of the kernel."""
    arguments = *tensors(problem, d_out, dq, dk, dv, d_theta, seen, numbers, words, bias), *numbers_of(problem)
    return described(arguments, tiled(problem, tiles)), constants(problem, tiles)


def tensors(
    problem: Problem,
    d_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    d_theta: Tensor,
    seen: Tensor | None,
    numbers: tuple[Tensor, Tensor] | None,
    words: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """The kernel's tensors; `dq` stands for those that it does not look at."""
    ends = problem.key_lengths if problem.cu_k is None else problem.cu_k[-1:]
    return (
        problem.q,
        problem.k,
        problem.v,
        d_out,
        dq,
        dk,
        dv,
        dq if seen is None else seen,
        dq if problem.cu_q is None else problem.cu_q[-1:],
        dq if ends is None else ends,
        *((dq, dq) if numbers is None else numbers),
        dq if problem.threshold is None else problem.threshold,
        d_theta,
        dq if words is None else words,
        dq if bias is None else bias,
        dq if problem.key_starts is None else problem.key_starts,
    )


def numbers_of(problem: Problem) -> tuple[object, ...]:
    """The kernel's arguments after its tensors, the same for all problems of one layout."""
    score_scale, threshold_scale, output_scale, gradient_scale = problem.scales()
    scales = threshold_scale, 1.0 if score_scale is None else score_scale, output_scale, gradient_scale
    steps = (0, 0) if problem.mask is None else repeats(problem)
    return problem.drop_below * 0x10001, *scales, *problem.q.shape[1:3], problem.k.shape[2], *steps


def tiled(problem: Problem, tiles: HopperGradientTiles) -> Tiles:
    """Which of the arguments are read or written in tiles."""
    dense = dict.fromkeys((1, 2, 5, 6), (ROWS, tiles.columns))
    dense |= {0: (tiles.queries, tiles.columns), 3: (tiles.queries, tiles.columns), 4: (ROWS, ROWS)}
    if problem.seed is not None:
        dense |= {10: (1, tiles.queries)}
    return dense | {15: (tiles.queries, ROWS)} if problem.biased else dense


def constants(problem: Problem, tiles: HopperGradientTiles) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    packed, tabled = problem.queries is not None, has_intervals(problem)
    parts: dict[str, object] = {} if tiles.parts == 1 else {"PARTS": tiles.parts}
    return parts | {
        "D": tiles.columns,
        "GROUP": problem.q.shape[1] // problem.k.shape[1],
        "CAUSAL": problem.causal and not tabled,  # else it is in the intervals
        "TABLED": tabled,
        "PACKED": packed,
        "ENDED": packed or problem.key_lengths is not None,
        "STARTED": problem.key_starts is not None,
        "MASKED": problem.mask is not None and not problem.biased,
        "BIASED": problem.biased,
        "DROPPED": problem.seed is not None,
        "SCALED": problem.scales()[0] is not None,
        "SHIFTED": problem.threshold is not None,
        "QUERIES": tiles.queries,
        "STAGES": tiles.stages,
        "PREFETCH": tiles.prefetch,
        "num_warps": 4,
    }
