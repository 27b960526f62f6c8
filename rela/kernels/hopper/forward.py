"""The forward pass on Hopper, in Gluon: one warp loads by the tensor memory accelerator, warpgroups multiply.

This module plans and launches; the kernel is in forward_kernel.py, its warp that loads in forward_loads.py, its
warpgroups in forward_products.py. Programs are persistent: the next tile of queries is loaded while this
one is multiplied. Row statistics, if asked for, are in statistics.py, dropout in dropout.py, masks in mask.py; which
keys queries see comes from a table (tables.py), unless all do or causality alone decides.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div, heads_last, processors
from rela.kernels.attention.tiles import HopperTiles
from rela.kernels.hopper.forward_kernel import forward_kernel
from rela.kernels.hopper.tables import addressable_bias, dropout_numbers, has_intervals, intervals, mask_words, repeats
from rela.kernels.launch import Launch, Tiles, described


def planned(
    problem: Problem, tiles: HopperTiles, statistics: bool
) -> Callable[[Problem, tuple[Tensor, ...] | None], Tensor]:
    """A function that computes this problem, and all that differ from it in their numbers alone."""
    programs = min(query_tiles(problem, tiles), processors(problem.q.device))
    start = Launch(forward_kernel, (programs,), constants(problem, tiles, statistics), tiled(problem, tiles))
    fixed = numbers_of(problem, tiles)
    shape, kind, device = problem.q.shape, problem.q.dtype, problem.q.device
    limits = problem.key_lengths, problem.mask, problem.seed
    plain = not statistics and not has_intervals(problem) and all(limit is None for limit in limits)

    def run(problem: Problem, rows: tuple[Tensor, ...] | None) -> Tensor:
        out = heads_last(shape, kind, device)
        tables: tuple[Any, ...] = None, None, None, None
        if not plain:
            tables = intervals(problem, of_keys=False), dropout_numbers(problem), mask_words(problem, of_keys=False)
            tables = *tables, addressable_bias(problem)
        start(*tensors(problem, out, rows, *tables), *fixed)
        return out

    return run


def launch(
    problem: Problem,
    out: Tensor,
    tiles: HopperTiles,
    rows: tuple[Tensor, ...] | None = None,
    seen: Tensor | None = None,
    numbers: tuple[Tensor, Tensor] | None = None,
    words: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and compile-time constants of the kernel."""
    arguments = *tensors(problem, out, rows, seen, numbers, words, bias), *numbers_of(problem, tiles)
    return described(arguments, tiled(problem, tiles)), constants(problem, tiles, rows is not None)


def tensors(
    problem: Problem,
    out: Tensor,
    rows: tuple[Tensor, ...] | None,
    seen: Tensor | None,
    numbers: tuple[Tensor, Tensor] | None,
    words: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """The kernel's tensors; `out` stands for those that it does not look at."""
    ends = problem.key_lengths if problem.cu_k is None else problem.cu_k[-1:]
    return (
        problem.q,
        problem.k,
        problem.v,
        out,
        *(rows or (out, out, out)),
        out if seen is None else seen,
        out if ends is None else ends,
        *((out, out) if numbers is None else numbers),
        out if problem.threshold is None else problem.threshold,
        out if words is None else words,
        out if bias is None else bias,
        out if problem.key_starts is None else problem.key_starts,
    )


def query_tiles(problem: Problem, tiles: HopperTiles) -> int:
    """How many tiles of queries all heads have."""
    B, H, T, _ = problem.q.shape
    return ceil_div(T, 2 * tiles.rows) * H * B


def heads_together(problem: Problem, tiles: HopperTiles) -> int:
    """How many heads form a group, whose keys are to stay in the cache: as many as have two tiles for each program.

    So many are balanced: of two rounds, each program computes a long and a short tile. Fewer would not be, and the keys
    of more would not stay in the cache. All groups are of about the same size.
    """
    B, H, _, _ = problem.q.shape
    groups = round(query_tiles(problem, tiles) / (2 * processors(problem.q.device)))
    return ceil_div(H * B, max(groups, 1))


def numbers_of(problem: Problem, tiles: HopperTiles) -> tuple[object, ...]:
    """The kernel's arguments after its tensors, the same for all problems of one layout."""
    (B, H, T, _), (_, Hk, S, _) = problem.q.shape, problem.k.shape
    score_scale, threshold_scale, output_scale, _ = problem.scales()
    scales = 1.0 if score_scale is None else score_scale, threshold_scale, output_scale
    steps = (0, 0) if problem.mask is None else repeats(problem)
    return problem.drop_below * 0x10001, *scales, B, H, heads_together(problem, tiles), H // Hk, T, S, *steps


def tiled(problem: Problem, tiles: HopperTiles) -> Tiles:
    """Which of the arguments are read or written in tiles."""
    queries, keys = (tiles.rows, tiles.columns), (tiles.keys, tiles.columns)
    dense = {0: queries, 1: keys, 2: keys, 3: queries}
    if problem.seed is not None:
        dense |= {10: (1, tiles.keys)}
    return dense | {13: (tiles.rows, tiles.keys)} if problem.biased else dense


def constants(problem: Problem, tiles: HopperTiles, statistics: bool) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    packed, tabled = problem.queries is not None, has_intervals(problem)
    return {
        "D": tiles.columns,
        "PARTS": tiles.parts,
        "AHEAD": tiles.ahead,
        "CAUSAL": problem.causal and not tabled,  # else it is in the intervals
        "LONGEST_FIRST": problem.causal and not packed,
        "TABLED": tabled,
        "ENDED": packed or problem.key_lengths is not None,
        "STARTED": problem.key_starts is not None,
        "MASKED": problem.mask is not None and not problem.biased,
        "BIASED": problem.biased,
        "DROPPED": problem.seed is not None,
        "SCALED": problem.scales()[0] is not None,
        "SHIFTED": problem.threshold is not None,
        "STATISTICS": statistics,
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
        "STAGES": tiles.stages,
        "QUERY_STAGES": tiles.query_stages,
        "BIAS_STAGES": 2 if tiles.columns == 64 else 1,
        "num_warps": 4,
    }
