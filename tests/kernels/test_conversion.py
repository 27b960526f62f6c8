"""Conversion of a sum gives what PyTorch's gives, to the bit."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.problem import heads_last
from rela.kernels.conversion import planned
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
