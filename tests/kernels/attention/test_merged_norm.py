"""The norm after attention is one plan for all lengths of a cache, and normalises merged heads."""

import pytest
import torch

pytest.importorskip("triton")

from rela.attention import norms
from rela.kernels.attention.merged_norm import Norm, forward_of, shape_of
from rela.kernels.attention.problem import Problem
from tests.kernels.exactness import draw


def problem_of(keys: int) -> Problem:
    q, k = draw(2, 3, 5, 8, seed=1), draw(2, 3, keys, 8, seed=2)
    return Problem(q, k, k, None, None, None, None, None, None, 0.3, "relu", False, 0.0)


@pytest.mark.parametrize("merged", [False, True])
def test_it_normalises_merged_heads(merged: bool):
    problem, norm = problem_of(7), Norm(draw(24, seed=3), draw(24, seed=4), 1e-6)
    context = problem.like_queries(torch.float32).copy_(draw(2, 3, 5, 8, seed=5))
    out = forward_of(problem, norm, merged)(context, *norm)
    assert out.shape == shape_of(problem, merged)
    wanted = norms.rms_norm(context.transpose(1, 2).flatten(2), *norm)
    torch.testing.assert_close(out.reshape(2, 5, 24), wanted)


def test_all_lengths_of_a_cache_share_it():
    norm = Norm(draw(24, seed=3), None, 1e-6)
    assert forward_of(problem_of(7), norm, True) is forward_of(problem_of(8), norm, True)
    assert forward_of(problem_of(7), norm, True) is not forward_of(problem_of(7), norm, False)
