"""Conversion of a sum gives what PyTorch's gives, to the bit."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.problem import heads_last
from rela.kernels.conversion import planned, planned_with_sums
from rela.kernels.layers.row_blocks import planned_sums
from tests.kernels.exactness import DEVICE, draw

TYPES = [torch.float16, torch.float32, *([torch.bfloat16] if DEVICE == "cuda" else [])]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 37, 5), (1, 2, 70, 64), (2, 1, 0, 8)])
@pytest.mark.parametrize("dtype", TYPES)
def test_it_is_pytorchs_conversion(shape, dtype):
    """Subnormals, numbers too large and NaN included; heads last in memory before and after."""
    x = heads_last(torch.Size(shape), torch.float32, torch.device(DEVICE)).copy_(draw(*shape) * 10.0 ** draw(*shape))
    for value, place in zip((1e-6, 1e6, -torch.inf, torch.nan), range(x.shape[2]), strict=False):
        x[:, 0, place, 0] = value
    run = planned(x.shape, dtype, x.device)
    for each in (x, -x):  # the second launch repeats the first
        assert run(each).stride() == each.to(dtype).stride()
        torch.testing.assert_close(run(each), each.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("parameters", "programs", "width"), [(1, 1, 1), (2, 70, 33), (1, 5, 96), (2, 64, 65)])
def test_one_launch_converts_and_adds_up_as_two_do(parameters, programs, width):
    """The sums of one parameter or two, beside more numbers than one program converts."""
    x = heads_last(torch.Size((1, 3, 700, 5)), torch.float32, torch.device(DEVICE)).copy_(draw(1, 3, 700, 5))
    partials = draw(parameters, programs, width, seed=2)
    kinds = (torch.float16, torch.float32)[:parameters]
    outcomes = []
    for together in (True, False):
        sums = [torch.empty(width, dtype=kind, device=x.device) for kind in kinds]
        first, second = (*sums, None)[:2]
        if together:
            run = planned_with_sums(x.shape, torch.float16, x.device, parameters, programs, width)
            out = run(x, partials, first, second)
        else:
            out = planned(x.shape, torch.float16, x.device)(x)
            planned_sums(parameters, programs, width)(partials, first, second)
        outcomes.append((out, *sums))
    for one, other in zip(*outcomes, strict=True):
        assert one.stride() == other.stride()
        assert torch.equal(one, other)
