"""The kernels take what their limits promise, up to the last number."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention, relu_attention_decode
from rela.kernels.limits import LARGEST_HEAD, MOST_DECODE_ROWS, TYPES
from tests.kernels.exactness import draw, reference


@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_head_in_every_type(dtype):
    if dtype == torch.bfloat16 and not torch.cuda.is_available():
        pytest.skip("the interpreter multiplies no bfloat16")
    q, k, v = (draw(1, 1, 5, LARGEST_HEAD, dtype=dtype, seed=seed) for seed in range(3))
    exact = reference(q.double(), k.double(), v.double(), scale=0.1)
    error = (relu_attention(q, k, v, scale=0.1).double() - exact).abs().max()
    assert error <= 4 * torch.finfo(dtype).eps * exact.abs().max()


def test_as_many_queries_as_decoding_takes():
    q, k, v = (draw(1, 4, rows, 16, seed=rows) for rows in (MOST_DECODE_ROWS, 90, 90))
    exact = reference(q.double(), k.double(), v.double(), scale=0.25)
    error = (relu_attention_decode(q, k, v, scale=0.25) - exact).abs().max()
    assert error <= 50 * torch.finfo(torch.float32).eps * exact.abs().max()
