"""The public functions take views as they are, and name what is wrong with their arguments."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention
from tests.kernels.attention.attention_cases import SCALE, assert_right, qkv
from tests.kernels.exactness import ACTIVATIONS, draw


def test_views_of_one_projection_are_read_in_place():
    projected = draw(2, 33, 3, 4, 20, seed=1)  # [B, T, 3, H, D]
    q, k, v = (x.transpose(1, 2) for x in projected.unbind(2))
    out = relu_attention(q, k, v, scale=SCALE, causal=True)
    apart = relu_attention(*(x.contiguous() for x in (q, k, v)), scale=SCALE, causal=True)
    assert torch.equal(out, apart)
    assert out.transpose(1, 2).is_contiguous()  # so that merging the heads is a view
    assert_right(q, k, v, causal=True)


def test_a_last_dimension_that_is_not_contiguous_is_accepted():
    q, k, v = (draw(1, 2, 24, 33, seed=seed).mT for seed in range(3))
    assert_right(q, k, v)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "gelu"}, f"activation must be one of {', '.join(ACTIVATIONS)}; got 'gelu'"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"threshold": torch.zeros(3)}, "threshold must be one number for each of 2 heads"),
        ({"key_lengths": torch.zeros(2)}, "key_lengths must be 2 integers"),
        ({"mask": torch.ones(2, 2, 9, 5, dtype=torch.bool)}, r"broadcast to \[2, 2, 5, 5\]"),
        ({"mask": torch.ones(1, 1, 5, 5)}, "mask must be bool"),
    ],
)
def test_bad_options_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        relu_attention(*qkv(T=5, S=5), **{"scale": 1.0, **change})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)), "the 2 heads of k must divide the 3 heads of q"),
        (((2, 2, 5, 8), (2, 2, 5, 9), (2, 2, 5, 9)), "share a head size"),
        (((2, 2, 5, 300), (2, 2, 5, 300), (2, 2, 5, 300)), "head size of 1 … 256"),
        (((2, 2, 5, 8), (2, 2, 5, 8), (2, 2, 6, 8)), "k and v must have the same shape"),
        (((2, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)), "same batch size"),
        (((2, 5, 8), (2, 5, 8), (2, 5, 8)), "4 dimensions"),
    ],
)
def test_bad_shapes_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        relu_attention(*(torch.zeros(shape) for shape in shapes), scale=1.0)


def test_mixed_types_are_named():
    q, k, v = qkv(T=5, S=5)
    with pytest.raises(TypeError, match=r"got torch.float16, torch.float32"):
        relu_attention(q.half(), k, v, scale=1.0)
