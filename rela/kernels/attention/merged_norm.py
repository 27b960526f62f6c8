"""The norm over the merged heads of a context, as a launch of its own after attention."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from rela.kernels.attention.problem import Problem, layout_of, memo_of
from rela.kernels.layers import rms_norm


class Norm(NamedTuple):
    """The norm over merged heads: its gain and its gate [H·D], and ε."""

    gain: Tensor
    gate: Tensor | None
    eps: float


def shape_of(problem: Problem, merged: bool) -> tuple[int, ...]:
    """The shape of a normalised context: [B, T, H·D] if `merged`, else [B, T, H, D]."""
    B, H, T, D = problem.q.shape
    return (B, T, H * D) if merged else (B, T, H, D)


def forward_of(problem: Problem, norm: Norm, merged: bool) -> Callable[..., Tensor]:
    """A function from a context [B, H, T, D], which lies in memory as [B, T, H, D], and the norm to the normalised one.

    It is contiguous, of `shape_of`. The function serves problems with any number of keys, of which every step of a
    generation has another.
    """
    key = "norm", merged, layout_of(norm.gain), layout_of(norm.gate)
    run = problem.memo.get(key)
    if run is None:
        q = problem.q
        of_queries = memo_of("norm after attention", q.shape, q.dtype, q.device)
        run = of_queries.get(key)
        if run is None:
            rows = problem.like_queries(q.dtype).transpose(1, 2).flatten(2)
            run = of_queries[key] = rms_norm.planned(rows, norm.gain, norm.gate, shape_of(problem, merged))
        problem.memo[key] = run
    return run
