"""Where the Hopper kernels take over: on which device, for which problems, with which tiles.

This module imports neither Gluon nor a kernel until a problem fits, so that the package works without either.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from rela.kernels.attention.problem import Problem, power_of_2
from rela.kernels.attention.tiles import HopperGradientTiles, HopperTiles

DECODED_HEADS = (64, 128)
SMALLEST_HEAD = 40
LARGEST_HEAD = 256
TYPES = (torch.bfloat16, torch.float16)
SHORTEST = 128  # queries and keys; at 64 and D = 64 the plain kernels are the faster ones
FEWEST_DECODE_KEYS = 512  # where the plain kernel becomes faster was not measured
LARGEST_DROPOUT = 0.96  # beyond that a comparison meets float16's NaN (dropout.py)
MOST_DECODE_QUERIES = 8  # of all heads that share a key head


@cache
def available(device: torch.device) -> bool:
    """Whether `device` is a Hopper GPU and this Triton has Gluon with all that the kernels use."""
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    try:
        import rela.kernels.hopper.backward
        import rela.kernels.hopper.decode
        import rela.kernels.hopper.forward  # noqa: F401
    except (ImportError, AttributeError):  # an older Triton, or a newer one: Gluon is young, and its names still move
        return False
    return True


def serves(problem: Problem, statistics: bool = False) -> bool:
    """Whether the Hopper kernels compute this problem, and are likely to do so faster.

    Row statistics they have where all keys are seen, or causality alone hides some.
    """
    q, k, v = problem.q, problem.k, problem.v
    limits = (problem.queries, problem.key_lengths, problem.key_starts, problem.mask, problem.left, problem.right)
    return (
        q.shape[3] % 8 == 0  # rows of outputs and gradients are steps of 16 bytes, too
        and SMALLEST_HEAD <= q.shape[3] <= LARGEST_HEAD
        and not (is_wide(problem) and (statistics or problem.biased))  # no registers, no shared memory left
        and q.dtype in TYPES
        and problem.record.on_hopper
        and problem.typical_queries >= SHORTEST
        and problem.typical_keys >= SHORTEST
        and (not problem.biased or has_bias_tiles(problem))
        and not (statistics and any(limit is not None for limit in limits))
        and problem.dropout <= LARGEST_DROPOUT
        and all(map(has_descriptor, (q, k, v)))
        and q.numel() > 0
        and k.numel() > 0
        and available(q.device)
    )


def is_wide(problem: Problem) -> bool:
    """Whether a head has more columns than a tile."""
    return problem.q.shape[3] > 128


def serves_decoding(problem: Problem) -> bool:
    """Whether the Hopper kernel decodes this problem: few queries for each key head, rows in steps of 16 bytes."""
    q, k, v = problem.q, problem.k, problem.v
    return (
        q.shape[3] in DECODED_HEADS
        and q.dtype in TYPES
        and problem.record.on_hopper
        and q.shape[1] // k.shape[1] * q.shape[2] <= MOST_DECODE_QUERIES
        and k.shape[2] >= FEWEST_DECODE_KEYS
        and problem.key_starts is None
        and problem.left is None
        and not (problem.causal and q.shape[2] > 1)
        and has_descriptor(k)
        and has_descriptor(v)
        and q.stride(-1) == 1
        and q.numel() > 0
        and available(q.device)
    )


def has_bias_tiles(problem: Problem) -> bool:
    """Whether a float mask is of 16 bits and has a number for every pair of query and key."""
    mask = problem.mask
    assert mask is not None
    full = mask.shape[2:] == (problem.q.shape[2], problem.k.shape[2]) and 0 not in mask.stride()[2:]
    return full and mask.dtype in TYPES


def has_descriptor(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can address x: contiguous rows, all else in steps of 16 bytes."""
    steps = (s * x.element_size() for s, n in zip(x.stride()[:-1], x.shape[:-1], strict=True) if n > 1)
    return x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in steps)


def forward_tiles(problem: Problem) -> HopperTiles:
    """Tiles have 64 or 128 columns: smaller heads are filled up with zeros, larger ones consist of parts."""
    D = problem.q.shape[3]
    if D > 192:
        return HopperTiles(64, 128, columns=128, parts=2, stages=2, query_stages=1, ahead=False)
    if D > 128:
        return HopperTiles(64, 128, columns=64, parts=3, stages=4, query_stages=1, ahead=False)
    columns = power_of_2(D)
    query_stages = 1 if problem.biased else 2  # a bias takes the room of the second
    return HopperTiles(64, 128, columns, stages=4 if columns == 64 else 2, query_stages=query_stages)


def gradient_tiles(problem: Problem) -> HopperGradientTiles:
    D = problem.q.shape[3]
    if D > 128:
        return HopperGradientTiles(queries=64, columns=64, stages=2, prefetch=False, parts=3 if D <= 192 else 4)
    columns = power_of_2(D)
    if columns == 64:
        return HopperGradientTiles(queries=128, columns=columns, stages=2, prefetch=True)
    return HopperGradientTiles(queries=64, columns=columns, stages=2, prefetch=False)


def planned_forward(
    problem: Problem, statistics: bool = False
) -> Callable[[Problem, tuple[Tensor, ...] | None], Tensor]:
    """A function for the context of problems like one that fits; `rows` given to it become their row statistics."""
    from rela.kernels.hopper import forward as hopper_forward

    return hopper_forward.planned(problem, forward_tiles(problem), statistics)


def backward(problem: Problem, d_out: Tensor, dq_sums: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dQ, dK, dV and, where there is a θ, the partial sums of −dθ, [B, H, parts], of a problem that fits.

    `dq_sums` are as in `rela.kernels.attention.backward.backward`.
    """
    layout = "hopper backward", d_out.stride(), d_out.data_ptr() % 16
    kept = problem.memo.get(layout)
    if kept is None:
        from rela.kernels.hopper import backward as hopper_backward

        kept = has_descriptor(d_out), hopper_backward.planned(problem, gradient_tiles(problem))
        problem.memo[layout] = kept
    fits, run = kept
    # a copy in any case: one that is contiguous may begin at an address that the accelerator does not take
    return run(problem, d_out if fits else d_out.clone(memory_format=torch.contiguous_format), dq_sums)


def planned_decode_parts(problem: Problem, splits: int) -> Callable[[Problem, Tensor], None]:
    """A function that fills parts [splits, B, T, H, D] of problems like one that fits; their sum is the context."""
    from rela.kernels.hopper import decode as hopper_decode

    return hopper_decode.planned_parts(problem, splits)
